#!/bin/sh
# coracle: submit = qsub -j oe -o /dev/null {{options}} {{script}}
# coracle: find = qstat -f | awk -v name={{job_name}} '/^Job Id/ { id = $NF } $1 == "Job_Name" && $3 == name { print id }'
# coracle: state = qstat -f {{id}} | awk -F ' = ' 'function s(t, a) { split(t, a, ":"); return (a[1] * 60 + a[2]) * 60 + a[3] } { sub(/^[ \t]+/, "") } $1 == "job_state" { print "state", $2 } $1 == "comment" { print "reason", $2 } $1 == "Exit_status" { print "status", $2 } $1 == "exec_host" { gsub(/\/[^+]*[+]?/, " ", $2); print "hosts", $2 } $1 == "Resource_List.walltime" { limit = s($2) } $1 == "resources_used.walltime" { used = s($2) } END { if (limit && used) print "left", limit - used }'
# coracle: queued = Q H W T M
# coracle: running = R E S U B
# coracle: ended = C F X
# coracle: gone = Unknown Job | Unknown Job Id | has finished
# coracle: cancel = qdel {{id}}
#PBS -N {{job_name}}
#PBS -l nodes={{nodes}}
#PBS -l walltime={{walltime}}
#PBS -q {{queue}}
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
