//! The users, images and checks that all crash tests share.

use std::path::PathBuf;

use testkit::command::Finished;
use testkit::docker_registry::DockerRegistry;
use testkit::image::Image;
use testkit::layer::Layer;
use testkit::person::Person;
use testkit::skip::Outcome;

/// One case.
pub(crate) type Case = fn(&Place) -> Outcome;

/// Two images that share a layer, each with one of its own, large enough to be interrupted.
pub(crate) struct Images {
    /// Names in the registry.
    pub(crate) names: [String; 2],
    /// The first one as a docker-archive.
    pub(crate) archive: Vec<u8>,
    /// Names in the registry of two images with few files.
    pub(crate) small: [String; 2],
    /// One of them as a docker-archive.
    pub(crate) small_archive: Vec<u8>,
}

/// One user, with the images and the registry.
pub(crate) struct Place<'s> {
    pub(crate) person: &'s Person,
    pub(crate) images: &'s Images,
}

/// Makes and pushes the images.
pub(crate) fn images(registry: &DockerRegistry) -> Images {
    let shared = filled("shared", 1500);
    let image = |name: &str| {
        testkit::guest::image().layer(shared.clone()).layer(filled(name, 700)).env("NAME", name)
    };
    let build = |image: &Image, name: &str| {
        registry.target().image(name, "1", &image.build()).expect("pushing");
        format!("{}/{name}:1", registry.host())
    };
    let (one, two) = (image("one"), image("two"));
    let few =
        |name: &str, files| testkit::guest::image().layer(filled(name, files)).env("NAME", name);
    let small = ["few", "less"].map(|name| build(&few(name, 40), &format!("crash/{name}")));
    let plain = [testkit::guest::layer().finish(), filled("some", 150).finish()];
    let small_archive =
        few("some", 150).build().docker_archive(&plain, &["localhost/crash/loaded:1"]);
    let names = [build(&one, "crash/one"), build(&two, "crash/two")];
    let plain =
        [testkit::guest::layer().finish(), shared.clone().finish(), filled("one", 700).finish()];
    Images {
        archive: one.build().docker_archive(&plain, &["localhost/crash/loaded:1"]),
        small,
        small_archive,
        names,
    }
}

fn filled(name: &str, files: u32) -> Layer {
    let mut layer = Layer::new().dir(name);
    for n in 0..files {
        if n % 100 == 0 {
            layer = layer.dir(&format!("{name}/{}", n / 100));
        }
        let noise: Vec<u8> =
            (0..2000u32).map(|m| ((m + n * 7).wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        layer = layer.file(&format!("{name}/{}/{n}", n / 100), 0o644, noise);
    }
    layer
}

impl Place<'_> {
    /// The same user with a new home for one case, also where that runs a second time.
    pub(crate) fn fresh(&self, name: &str) -> Person {
        let mut unused = (1..).map(|number| match number {
            1 => name.to_owned(),
            number => format!("{name}-{number}"),
        });
        let home = unused.find(|name| !self.person.home.join(name).exists());
        self.person.at(&self.person.dir(&home.unwrap_or_default()))
    }

    /// The archive as a file of the user.
    pub(crate) fn archive(&self, person: &Person) -> PathBuf {
        let file = person.home.join("archive.tar");
        if !file.exists() {
            std::fs::write(&file, &self.images.archive).expect("the archive");
            person.give(&file);
        }
        file
    }
}

/// The arguments that pull an image from the test registry.
pub(crate) fn pull(image: &str) -> [&str; 4] {
    ["pull", "-q", "--tls-verify=false", image]
}

/// Listings that must always work.
#[track_caller]
pub(crate) fn still_usable(person: &Person, after: &str) {
    for words in [["images"].as_slice(), &["ps", "-a"], &["system", "df"]] {
        let done = person.run(words);
        assert!(done.code() == 0, "after {after}: {done:?}");
    }
}

/// Checks that pulling and running work and that the store is undamaged.
#[track_caller]
pub(crate) fn whole(person: &Person, images: &Images, after: &str) {
    let check = |done: Finished, code: i32| {
        assert!(done.code() == code, "after {after}: expected {code}: {done:?}");
        done
    };
    check(person.run(&["verify"]), 0);
    for image in &images.names {
        check(person.run(&pull(image)), 0);
        let read = ["run", "--rm", image, "/bin/guest", "read", "/data/one", ";", "exit", "7"];
        check(person.run(&read), 7);
        // Every file of every layer is there.
        let name = if image.contains("one") { "one" } else { "two" };
        let list = format!("/{name}/6");
        let done = check(person.run(&["run", "--rm", image, "/bin/guest", "list", &list]), 0);
        assert_eq!(done.out().matches(',').count(), 99, "after {after}: a layer is not whole");
        let done =
            check(person.run(&["run", "--rm", image, "/bin/guest", "list", "/shared/14"]), 0);
        assert_eq!(done.out().matches(',').count(), 99, "after {after}: a layer is not whole");
    }
    check(person.run(&["verify"]), 0);
}

/// A generator of numbers that repeat for a seed.
pub(crate) struct Dice(u64);

impl Dice {
    /// Seeded from `CORACLE_CRASH_SEED`, or fixed.
    pub(crate) fn new(salt: u64) -> Self {
        let seed = std::env::var("CORACLE_CRASH_SEED").ok().and_then(|text| text.parse().ok());
        Self(seed.unwrap_or(0x5eed_u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (salt + 1))
    }

    /// A number below `limit`.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) % limit.max(1)
    }
}

/// Number of rounds: `few`, or `CORACLE_CRASH_ROUNDS`.
pub(crate) fn rounds(few: u64) -> u64 {
    std::env::var("CORACLE_CRASH_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(few)
}
