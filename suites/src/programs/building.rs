//! Tests that a compiler builds a real C project, whose own tests pass: zlib, from Debian's
//! sources.

use std::time::Duration;

use testkit::skip::Outcome;

use crate::programs::stage::{Case, World};

pub(crate) const CASES: &[(&str, Case)] = &[("zlib", zlib), ("cxx", cxx)];

fn zlib(w: &World) -> Outcome {
    let archive = testkit::trees::zlib()?;
    let c = w.container();
    let bytes = std::fs::read(archive).expect("the archive of the source");
    c.feed("mkdir /z; tar xj -C /z --strip-components=1", bytes).ok();
    let script = "cd /z; ./configure --prefix=/usr/local >/dev/null; make -j2 2>&1 | tail -3; make test >log 2>&1 || { tail -20 log; exit 1; }; grep OK log";
    let done = c.sh_in(script, Duration::from_mins(6));
    for line in
        ["*** zlib test OK ***", "*** zlib shared test OK ***", "*** zlib 64-bit test OK ***"]
    {
        assert!(done.ok().out().contains(line), "{done:?}");
    }
    let done = c.sh("\
        cd /z; make -s install >/dev/null 2>&1; ldconfig; stat -c '%U %a %F' /usr/local/lib/libz.a /usr/local/lib/libz.so.1
        printf '#include <zlib.h>\\n#include <stdio.h>\\nint main(void) { puts(zlibVersion()); }\\n' > t.c
        cc -g t.c -o t -L/usr/local/lib -Wl,-rpath,/usr/local/lib -lz; ./t; cc -static t.c -o s -L/usr/local/lib -lz; ./s");
    assert_eq!(done.ok().out(), "root 644 regular file\nroot 777 symbolic link\n1.2.13\n1.2.13\n");
    Ok(())
}

fn cxx(w: &World) -> Outcome {
    let c = w.container();
    let done = c.sh("\
        cd /root; cat > t.cc <<'END'
#include <thread>
#include <iostream>
#include <filesystem>
#include <vector>
int main() {
    std::vector<std::thread> all; int sums[8] = {};
    for (int i = 0; i < 8; i++) all.emplace_back([&sums, i] { for (auto &e : std::filesystem::directory_iterator(\"/etc\")) sums[i] += e.exists() || e.is_symlink(); });
    for (auto &one : all) one.join();
    for (int sum : sums) if (sum != sums[0] || !sum) return 1;
    try { std::filesystem::copy(\"/nowhere\", \"/x\"); } catch (std::exception &e) { std::cout << \"caught\\n\"; }
}
END
        g++ -O1 -flto -pthread t.cc -o t; ./t; ar rcs l.a t.cc; strip t; ./t");
    assert_eq!(done.ok().out(), "caught\ncaught\n", "{done:?}");
    Ok(())
}
