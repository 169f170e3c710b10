# Starts the controller. Its spool is of the kind "classic": text, which is written here before the
# controller reads it. What a user has changed by qconf stays; which nodes there are, and how many
# slots they have, is said by the cluster file (lines of "QUEUE SLOTS HOST" in $given/nodes).
set -e
. /etc/gridengine/cell.sh
export LD_LIBRARY_PATH=$programs
master=$spool/qmaster settings=/usr/share/gridengine

if [ ! -e $spool/made ]; then
    rm -rf $spool/common $master
    mkdir -p $spool/common $master/job_scripts
    $programs/spoolinit classic libspoolc "$spool/common;$master" init
    # No job runs as root here, so none is refused for its id. Nodes tell each second what they
    # do: the slots of a parallel job are free only when all of its nodes have.
    sed -e 's/^min_uid .*/min_uid 0/; s/^min_gid .*/min_gid 0/' \
        -e 's,^execd_spool_dir .*,execd_spool_dir /tmp/execd,' \
        -e 's/^load_report_time .*/load_report_time 00:00:01/' \
        -e 's/^max_unheard .*/max_unheard 00:00:20/' \
        -e 's,^mailer .*,mailer /bin/true,; s/^administrator_mail .*/administrator_mail none/' \
        $settings/default-configuration >/tmp/configuration
    $programs/spooldefaults configuration /tmp/configuration
    $programs/spooldefaults complexes $settings/util/resources/centry
    $programs/spooldefaults usersets $settings/util/resources/usersets
    $programs/spooldefaults managers "$(id -un)"
    # "mpi" fills nodes one after the other; the slots of "smp" are on one node.
    sed 's/^job_is_first_task .*/job_is_first_task FALSE/' $settings/util/resources/pe/mpi \
        >$master/pe/mpi
    cp $settings/util/resources/pe/smp $master/pe/smp
    # sched_conf(5): looks for nodes each second, and at once when a job comes or ends. Load does
    # not count, since a slot is a processor.
    cat >$spool/common/sched_configuration <<END
algorithm default
schedule_interval 0:0:1
maxujobs 0
queue_sort_method 1
job_load_adjustments NONE
load_adjustment_decay_time 0:0:0
load_formula np_load_avg
schedd_job_info false
flush_submit_sec 1
flush_finish_sec 1
params none
reprioritize_interval 0:0:0
halftime 168
usage_weight_list cpu=1.000000 mem=0.000000 io=0.000000
compensation_factor 5.000000
weight_user 0.250000
weight_project 0.250000
weight_department 0.250000
weight_job 0.250000
weight_tickets_functional 0
weight_tickets_share 0
weight_tickets_override 0
share_override_tickets TRUE
share_functional_shares TRUE
max_functional_jobs_to_schedule 200
report_pjob_tickets TRUE
max_pending_tasks_per_job 50
halflife_decay_list none
policy_hierarchy OFS
weight_ticket 0.500000
weight_waiting_time 0.278000
weight_deadline 3600000.000000
weight_urgency 0.500000
weight_priority 0.000000
max_reservation 0
default_duration INFINITY
END
    : >$spool/made
fi

mkdir -p $master/submit_hosts $master/admin_hosts $master/exec_hosts
for host in $(hostname) $(cat $given/submit); do
    echo "hostname $host" >$master/submit_hosts/$host
done
while read -r queue slots host; do
    for kind in submit admin; do
        echo "hostname $host" >$master/${kind}_hosts/$host
    done
    mkdir -p $master/qinstances/$queue
    [ -e $master/exec_hosts/$host ] || cat >$master/exec_hosts/$host <<END
hostname $host
load_scaling NONE
complex_values NONE
load_values NONE
processors 0
reschedule_unknown_list NONE
user_lists NONE
xuser_lists NONE
projects NONE
xprojects NONE
usage_scaling NONE
report_variables NONE
END
    # 1024: the node does not answer.
    [ -e $master/qinstances/$queue/$host ] || cat >$master/qinstances/$queue/$host <<END
qname $queue
hostname $host
state 1024
pending_signal 0
pending_signal_del 0
version 1
END
done <$given/nodes
cut -d ' ' -f 1,2 $given/nodes | sort -u | while read -r queue slots; do
    hosts=$(sed -n "s/^$queue [0-9]* //p" $given/nodes | tr '\n' ' ')
    printf 'group_name @%s\nhostlist %s\n' "$queue" "$hosts" >"$master/hostgroups/@$queue"
    if [ -e $master/cqueues/$queue ]; then
        sed -i "s/^slots .*/slots $slots/" $master/cqueues/$queue
        continue
    fi
    cat >$master/cqueues/$queue <<END
qname $queue
hostlist @$queue
seq_no 0
load_thresholds NONE
suspend_thresholds NONE
nsuspend 1
suspend_interval 00:05:00
priority 0
min_cpu_interval 00:05:00
processors UNDEFINED
qtype BATCH INTERACTIVE
ckpt_list NONE
pe_list mpi smp
rerun TRUE
slots $slots
tmpdir /tmp
shell /bin/sh
prolog NONE
epilog NONE
shell_start_mode unix_behavior
starter_method NONE
suspend_method NONE
resume_method NONE
terminate_method NONE
notify 00:00:60
owner_list NONE
user_lists NONE
xuser_lists NONE
subordinate_list NONE
complex_values NONE
projects NONE
xprojects NONE
calendar NONE
initial_state default
s_rt INFINITY
h_rt INFINITY
s_cpu INFINITY
h_cpu INFINITY
s_fsize INFINITY
h_fsize INFINITY
s_data INFINITY
h_data INFINITY
s_stack INFINITY
h_stack INFINITY
s_core INFINITY
h_core INFINITY
s_rss INFINITY
h_rss INFINITY
s_vmem INFINITY
h_vmem INFINITY
END
done
exec $programs/sge_qmaster
