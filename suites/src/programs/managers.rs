//! Tests of package managers of other distributions: `rpm` and `dnf` with scriptlets, owners and
//! special bits.

use testkit::skip::Outcome;

use crate::programs::stage::{Case, Container, World};

pub(crate) const CASES: &[(&str, Case)] = &[("rpm", rpm), ("dnf", dnf)];

/// A package whose scriptlets make a user, and whose files belong to it.
const SPEC: &str = "\
    mkdir -p /b/SPECS; cat > /b/SPECS/hello.spec <<'END'
Name: hello
Version: 1
Release: 1
Summary: A test
License: MIT
BuildArch: noarch
%description
A test.
%install
mkdir -p %{buildroot}/opt/hello/data %{buildroot}/opt/hello/spool
echo hi > %{buildroot}/opt/hello/data/file
printf '#!/bin/sh\\necho hello\\n' > %{buildroot}/opt/hello/run
ln -s run %{buildroot}/opt/hello/link
%pre
getent passwd hello >/dev/null || useradd -r -u 777 -U -d /opt/hello -s /bin/false hello
%post
echo \"post $1 $(id -u)\" >> /var/log/hello; chown hello:hello /var/log/hello
%preun
echo \"preun $1\" >> /var/log/hello
%postun
echo \"postun $1\" >> /var/log/hello
%files
%dir /opt/hello
%attr(4755, root, hello) /opt/hello/run
/opt/hello/link
%attr(0640, hello, hello) /opt/hello/data/file
%attr(2770, hello, hello) %dir /opt/hello/data
%attr(1777, root, root) %dir /opt/hello/spool
END
    rpmbuild --quiet -bb --define '_topdir /b' --define '_dbpath /var/lib/rpm' /b/SPECS/hello.spec ";

const CHECK: &str = "cd /opt/hello; stat -c '%n %U:%G %a' run link data data/file spool; ./run; cat /var/log/hello; stat -c %U /var/log/hello";
const EXPECTED: &str = "run root:hello 4755\nlink root:root 777\ndata hello:hello 2770\ndata/file hello:hello 640\nspool root:root 1777\n\
     hello\npost 1 0\nhello\n";

#[track_caller]
fn removed(c: &Container<'_>) {
    let done = c.sh("cat /var/log/hello; ls /opt");
    assert_eq!(done.ok().out(), "post 1 0\npreun 0\npostun 0\n", "{done:?}");
}

fn rpm(w: &World) -> Outcome {
    let c = w.container();
    c.sh(SPEC).ok();
    let done = c.sh(&format!("rpm -i --nodeps /b/RPMS/noarch/hello-1-1.noarch.rpm; {CHECK}"));
    assert_eq!(done.ok().out(), EXPECTED, "{done:?}");
    c.restart();
    let done = c.sh(&format!("{CHECK}; rpm -V --nodeps hello; chmod 700 /opt/hello/data; rpm -V --nodeps hello || rpm --setperms hello; rpm -V --nodeps hello; rpm -e --nodeps hello"));
    assert!(done.ok().out().starts_with(EXPECTED) && done.out().contains(".M......."), "{done:?}");
    removed(&c);
    Ok(())
}

fn dnf(w: &World) -> Outcome {
    let c = w.container();
    c.sh(SPEC).ok();
    // RPM's own database is empty here, so a package declares the scriptlets' requirements.
    let done = c.sh("\
        mkdir -p /etc/yum.repos.d; printf '[local]\\nname=local\\nbaseurl=file:///b/RPMS\\ngpgcheck=0\\n' > /etc/yum.repos.d/local.repo
        cat > /b/SPECS/base.spec <<'END'
Name: base
Version: 1
Release: 1
Summary: What Debian has
License: MIT
BuildArch: noarch
Provides: /bin/sh
%description
Base.
%files
END
        rpmbuild --quiet -bb --define '_topdir /b' --define '_dbpath /var/lib/rpm' /b/SPECS/base.spec
        createrepo_c -q /b/RPMS; dnf -q -y --setopt=reposdir=/etc/yum.repos.d --releasever=1 install hello 2>&1");
    done.ok();
    let checked = c.sh(CHECK);
    assert_eq!(checked.ok().out(), EXPECTED, "{done:?}\n{checked:?}");
    let done =
        c.sh("dnf -q -y --setopt=reposdir=/etc/yum.repos.d --releasever=1 remove hello 2>&1");
    done.ok();
    removed(&c);
    Ok(())
}
