#!/bin/sh
# coracle: submit = bsub {{options}} <{{script}} | sed -n 's/^Job <\([0-9]*\)>.*/\1/p'
# coracle: find = bjobs -a -noheader -o "jobid job_description delimiter='|'" | awk -F '|' -v tag={{tag}} '$2 == tag { print $1 }'
# coracle: state = bjobs -a -noheader -o "stat exit_code time_left exec_host pend_reason delimiter='|'" {{id}} | awk -F '|' '{ print "state", $1 } $2 ~ /^[0-9]+$/ { print "status", $2 } $3 ~ /^[0-9]+:/ { split($3, t, /[: ]/); print "left", (t[1] * 60 + t[2]) * 60 } $4 != "-" { gsub(/[0-9]+[*]/, "", $4); gsub(/:/, " ", $4); print "hosts", $4 } $5 != "-" && $1 == "PEND" { print "reason", $5 }'
# coracle: queued = PEND PSUSP WAIT
# coracle: running = RUN USUSP SSUSP PROV UNKWN ZOMBI
# coracle: ended = DONE EXIT
# coracle: gone = is not found | No matching job found | No unfinished job found | No job found | has already finished
# coracle: cancel = bkill {{id}}
#BSUB -J {{job_name}}
#BSUB -Jd {{tag}}
#BSUB -n {{nodes}}
#BSUB -R "span[ptile=1]"
#BSUB -W {{minutes}}
#BSUB -q {{queue}}
#BSUB -o /dev/null
exec >>{{output}} 2>&1
{{command}} &
job=$!
trap 'kill -TERM $job 2>/dev/null' HUP INT TERM
wait $job
status=$?
# A signal ends the waiting, not the command.
while kill -0 $job 2>/dev/null; do
    wait $job
    status=$?
done
echo $status >{{status}}
exit $status
