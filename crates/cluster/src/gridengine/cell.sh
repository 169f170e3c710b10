# Makes this container one of the cell, as sge_intro(1) has it. /etc/gridengine is what the driver
# has written.
given=/etc/gridengine programs=/usr/lib/gridengine spool=/var/spool/gridengine
common=$SGE_ROOT/default/common
mkdir -p $common
for part in bin lib util utilbin; do
    [ -e $SGE_ROOT/$part ] || ln -s /var/lib/gridengine/$part $SGE_ROOT/$part
done
cp $given/act_qmaster $common/act_qmaster
# Jobs run where they were submitted: the homes of users are not there.
echo -cwd >$common/sge_request
cat >$common/bootstrap <<END
admin_user $(id -un)
default_domain none
ignore_fqdn true
spooling_method classic
spooling_lib libspoolc
spooling_params $spool/common;$spool/qmaster
binary_path /usr/sbin
qmaster_spool_dir $spool/qmaster
security_mode none
listener_threads 2
worker_threads 2
scheduler_threads 1
END
# Daemons stay in the foreground. Names are looked up again after a second, also those that were not
# found: a node that is started anew may have another address.
export SGE_ND=1
export SGE_COMMLIB_HOST_LIST_RERESOLVE_TIME=1 SGE_COMMLIB_HOST_LIST_UPDATE_TIME=2
export SGE_COMMLIB_HOST_LIST_LIFE_TIME=10
