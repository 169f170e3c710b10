# Files, tests of them, forks, pipes, sockets, and signals in the middle of all that.
use strict; use warnings;
use Cwd; use File::Find; use File::Temp qw(tempdir); use IO::Socket::UNIX; use Time::HiRes;
$| = 1;
my $top = tempdir(CLEANUP => 0); chdir $top or die;
my ($alarms, $ends) = (0, 0);
$SIG{ALRM} = sub { $alarms++ }; Time::HiRes::setitimer(Time::HiRes::ITIMER_REAL(), 0.005, 0.005);
my $seen = 0;
for my $n (1 .. 20000) { $seen++ if -e "/etc/passwd"; $seen++ if -d "/nowhere/$n"; }
print "seen $seen, alarms ", ($alarms > 0 ? "came" : "none"), "\n";
for my $n (1 .. 200) {
    open my $out, '>', "f$n" or die $!; print $out $n x 100; close $out;
    chmod 0640, "f$n"; chown 5, 6, "f$n"; symlink "f$n", "l$n" or die;
}
my ($files, $sum) = (0, 0);
find(sub { if (-f $_ && !-l $_) { my @s = stat; $files++ if $s[4] == 5 && ($s[2] & 07777) == 0640; $sum += -s _ } }, '.');
print "files $files $sum\n";
rename "f$_", "g$_" or die for 1 .. 100;
my @left = glob "f*"; opendir my $d, '.'; my @all = grep { !/^\./ } readdir $d;
print scalar(@left), " of ", scalar(@all), " ", readlink("l7"), "\n";
print "missing: $!\n" unless open my $in, '<', '/nowhere/x';
print "kept: $!\n" unless rmdir '/etc';
my @children;
for my $n (1 .. 30) {
    my $pid = fork // die;
    if (!$pid) { exec 'sh', '-c', "exit $n" if $n % 2; open my $in, '<', "g$n" or exit 99; exec 'sh', '-c', 'exit ' . (-s $in ? $n : 98) }
    push @children, $pid;
}
for (@children) { my $pid; do { $pid = waitpid $_, 0 } while $pid < 0 && $!{EINTR}; $ends += $? >> 8 }
print "ends $ends\n";
my $text = '';
for my $n (1 .. 10) { open my $pipe, '-|', 'sh', '-c', 'echo $0 $PPID', $n or die; my ($k, $parent) = split ' ', <$pipe>; close $pipe; $text .= $parent == $$ ? $k : '?' }
print "pipes $text\n";
my $server = IO::Socket::UNIX->new(Local => "$top/socket", Listen => 5) or die "socket: $!";
if (!(fork // die)) { my $one = IO::Socket::UNIX->new(Peer => 'socket') or die; print $one "hello from a child of ", getppid(); exec 'true' }
my $one; do { $one = $server->accept } until $one;
my $said = ''; while (1) { my $n = sysread $one, my $part, 100; next if !defined $n && $!{EINTR}; last unless $n; $said .= $part }
print $said eq "hello from a child of $$" ? "hello\n" : "$said\n";
my ($user, undef, $uid, undef, undef, undef, undef, $home) = getpwuid $<;
print "$user $uid $home ", (getcwd() eq $top ? "here" : getcwd()), " $0\n";
print `pwd` eq "$top\n" ? "same\n" : "other\n";
Time::HiRes::setitimer(Time::HiRes::ITIMER_REAL(), 0);
system('kill -9 $$'); print "signal ", $? & 127, "\n";
