//! Reads `-v`, `--mount`, `--tmpfs` and `--device`: what is mounted where, as far as the text says.
//!
//! Volumes are named here and found (or made) by [`crate::container::volumes`].

use std::os::unix::fs::FileTypeExt as _;
use std::path::{Component, Path, PathBuf};

use engine::spec::{DeviceSpec, MountKind, MountSpec};

use crate::error::{Error, Result};

/// A mount as it was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountRequest {
    /// All but a volume's place.
    pub spec: MountSpec,
    /// Do not fill a new volume with what the image has there.
    pub no_copy: bool,
}

impl MountRequest {
    fn of(spec: MountSpec) -> Self {
        Self { spec, no_copy: false }
    }
}

/// `-v SOURCE:TARGET[:OPTIONS]`.
///
/// `working`: the directory in which relative paths begin, where there is one.
pub fn volume(text: &str, working: Option<&Path>) -> Result<MountRequest> {
    let wrong = |why: String| {
        Error::invalid(format!("--volume '{text}': {why}")).with_hint(
            "write -v HOST_PATH:PATH[:ro] or -v VOLUME:PATH[:ro]; for paths with ':' use --mount",
        )
    };
    let parts: Vec<&str> = text.split(':').collect();
    let (source, inside, options) = match parts.as_slice() {
        [inside] => ("", *inside, ""),
        [source, inside] => (*source, *inside, ""),
        [source, inside, options] => (*source, *inside, *options),
        _ => return Err(wrong("too many ':'".into())),
    };
    let mut request = MountRequest::of(MountSpec {
        target: target(inside).map_err(wrong)?,
        ..MountSpec::default()
    });
    match parts.len() {
        1 => {
            request.spec.kind = MountKind::Volume;
            request.spec.unnamed = true;
        }
        _ if source.is_empty() => return Err(wrong("the source is empty".into())),
        _ => place(&mut request, source, working).map_err(wrong)?,
    }
    request.spec.create_source = request.spec.kind == MountKind::Bind;
    for option in options.split(',').filter(|option| !option.is_empty()) {
        apply_option(&mut request, option).map_err(wrong)?;
    }
    Ok(request)
}

/// Host path or volume?
fn place(request: &mut MountRequest, source: &str, working: Option<&Path>) -> Result<(), String> {
    if source.starts_with('/') {
        request.spec.source = source.into();
    } else if source == "."
        || source == ".."
        || source.starts_with("./")
        || source.starts_with("../")
    {
        request.spec.source = below(working, source)?;
    } else if source.starts_with('~') {
        return Err("'~' was not replaced by your shell; write $HOME".into());
    } else if source.contains('/') {
        return Err(format!(
            "'{source}' is neither an absolute path nor a volume's name; for a path from here write './{source}'"
        ));
    } else {
        request.spec.kind = MountKind::Volume;
        request.spec.name = Some(source.to_owned());
    }
    Ok(())
}

/// A host path of the user's as an absolute one.
fn below(working: Option<&Path>, source: &str) -> Result<PathBuf, String> {
    if source.starts_with('/') {
        return Ok(source.into());
    }
    let gone = || format!("'{source}' is nowhere, because the working directory is gone");
    Ok(working.ok_or_else(gone)?.join(source))
}

/// A volume without a name at a path that an image declares. As in Docker, the path begins at the
/// container's root in any case.
///
/// # Errors
/// If it is the root.
pub fn declared(path: &str) -> Result<MountRequest, String> {
    let (target, kind) = (target(&format!("/{path}"))?, MountKind::Volume);
    Ok(MountRequest::of(MountSpec { target, kind, unnamed: true, ..MountSpec::default() }))
}

/// The mounts of a request, one for each target, as in Docker: a volume without a name gives way to
/// what else is asked for, the last memory counts, and what is asked for twice is there once.
///
/// # Errors
/// If two others have one target.
pub fn distinct(mounts: Vec<MountRequest>) -> Result<Vec<MountRequest>> {
    let mut kept: Vec<MountRequest> = Vec::new();
    for mount in mounts {
        let Some(at) = kept.iter().position(|known| known.spec.target == mount.spec.target) else {
            kept.push(mount);
            continue;
        };
        let known = &kept[at];
        let is_memory = |one: &MountRequest| one.spec.kind == MountKind::Tmpfs;
        if mount.spec.unnamed || asks_alike(known, &mount) {
            continue;
        }
        if known.spec.unnamed || is_memory(known) && is_memory(&mount) {
            kept[at] = mount;
            continue;
        }
        let target = mount.spec.target.display();
        return Err(Error::invalid(format!("Duplicate mount point: {target}"))
            .with_hint("give one -v, --mount or --tmpfs for each path in the container"));
    }
    Ok(kept)
}

/// Whether two requests ask for the same, in whichever of the flags.
fn asks_alike(one: &MountRequest, other: &MountRequest) -> bool {
    let spec = MountSpec { create_source: one.spec.create_source, ..other.spec.clone() };
    one.no_copy == other.no_copy && one.spec == spec
}

fn target(text: &str) -> Result<PathBuf, String> {
    let path = Path::new(text);
    if !path.is_absolute() {
        return Err(format!("the path inside the container must be absolute, not '{text}'"));
    }
    let mut clean = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::Normal(name) => clean.push(name),
            Component::ParentDir => {
                clean.pop();
            }
            _ => {}
        }
    }
    if clean == Path::new("/") {
        return Err("nothing can be mounted over the container's root; see --rootfs".into());
    }
    Ok(clean)
}

fn apply_option(request: &mut MountRequest, option: &str) -> Result<(), String> {
    match option {
        "ro" | "readonly" => request.spec.read_only = true,
        "rw" => request.spec.read_only = false,
        "nocopy" => request.no_copy = true,
        "copy" => request.no_copy = false,
        "U" => {
            return Err("option 'U' would change owners on the host; use --userns keep-id".into());
        }
        other => return request.spec.options.add(request.spec.kind, other),
    }
    Ok(())
}

/// `--mount type=...,src=...,dst=...`.
pub fn mount(text: &str, working: Option<&Path>) -> Result<MountRequest> {
    parsed(text, working).map_err(|why| {
        Error::invalid(format!("--mount '{text}': {why}")).with_hint(
            "write --mount type=bind|volume|tmpfs,src=SOURCE,dst=PATH[,ro][,tmpfs-size=SIZE]",
        )
    })
}

fn parsed(text: &str, working: Option<&Path>) -> Result<MountRequest, String> {
    let mut request =
        MountRequest::of(MountSpec { kind: MountKind::Volume, ..MountSpec::default() });
    let (mut source, mut inside) = (None, None);
    for field in fields(text) {
        let (key, value) = match field.split_once('=') {
            Some((key, value)) => (key, Some(value)),
            None => (field.as_str(), None),
        };
        let needed = || value.ok_or_else(|| format!("'{key}' wants a value"));
        match key.to_ascii_lowercase().as_str() {
            "source" | "src" => source = Some(needed()?.to_owned()),
            "target" | "destination" | "dst" => inside = Some(needed()?.to_owned()),
            lower => set_field(&mut request, key, lower, value)?,
        }
    }
    request.spec.target = target(&inside.ok_or("'dst' is missing")?)?;
    match (request.spec.kind, source) {
        (MountKind::Bind, None) => return Err("'src' is missing".into()),
        (MountKind::Bind, Some(source)) => request.spec.source = below(working, &source)?,
        (MountKind::Volume, None) => request.spec.unnamed = true,
        (MountKind::Volume, Some(name)) if name.contains('/') => {
            return Err(format!(
                "'{name}' is not a volume's name; for a host path write type=bind"
            ));
        }
        (MountKind::Volume, Some(name)) => request.spec.name = Some(name),
        (MountKind::Tmpfs, Some(_)) => return Err("a tmpfs has no source".into()),
        (MountKind::Tmpfs, None) => {}
    }
    Ok(request)
}

/// One field of `--mount` other than source and target. `lower` is the key in lower case.
fn set_field(
    request: &mut MountRequest,
    key: &str,
    lower: &str,
    value: Option<&str>,
) -> Result<(), String> {
    let needed = || value.ok_or_else(|| format!("'{key}' wants a value"));
    let is_on = value.is_none_or(truth);
    let spec = &mut request.spec;
    match lower {
        "type" => {
            spec.kind = match needed()? {
                "bind" => MountKind::Bind,
                "volume" => MountKind::Volume,
                "tmpfs" => MountKind::Tmpfs,
                other => return Err(format!("there is no type '{other}' (bind, volume, tmpfs)")),
            }
        }
        "readonly" | "ro" => spec.read_only = is_on,
        "rw" => spec.read_only = !is_on,
        "bind-propagation" => {
            let word = needed()?;
            let known = ["private", "rprivate", "slave", "rslave", "shared", "rshared"];
            if !known.contains(&word) {
                return Err(format!("unknown propagation '{word}' (rslave, rprivate)"));
            }
            spec.options.add(MountKind::Bind, word)?;
        }
        "bind-nonrecursive" if is_on => {
            return Err("what is mounted beneath the source always comes with it".into());
        }
        "bind-nonrecursive" | "bind-recursive" | "consistency" | "relabel" => {}
        "volume-nocopy" => request.no_copy = is_on,
        "tmpfs-size" => {
            spec.options.add(MountKind::Tmpfs, &format!("size={}", size(needed()?)?))?;
        }
        "tmpfs-mode" => spec.options.add(MountKind::Tmpfs, &format!("mode={}", needed()?))?,
        other => return Err(format!("unknown key '{other}'")),
    }
    Ok(())
}

fn truth(value: &str) -> bool {
    matches!(value, "true" | "1" | "t" | "T" | "TRUE" | "True")
}

fn size(text: &str) -> Result<u64, String> {
    crate::size::parse(text).ok_or_else(|| format!("'{text}' is not a size"))
}

/// Fields parted by commas; quotes keep a comma in a field, as in CSV (RFC 4180).
fn fields(text: &str) -> Vec<String> {
    let (mut out, mut field, mut quoted) = (Vec::new(), String::new(), false);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => {
                field.push('"');
                chars.next();
            }
            '"' => quoted = !quoted,
            ',' if !quoted => out.push(std::mem::take(&mut field)),
            c => field.push(c),
        }
    }
    out.push(field);
    out.retain(|field| !field.is_empty());
    out
}

/// `--tmpfs TARGET[:OPTIONS]`.
pub fn tmpfs(text: &str) -> Result<MountRequest> {
    let wrong = |why: String| {
        Error::invalid(format!("--tmpfs '{text}': {why}"))
            .with_hint("write --tmpfs PATH[:size=64m,mode=1777,noexec]")
    };
    let (inside, options) = text.split_once(':').unwrap_or((text, ""));
    let mut spec = MountSpec {
        kind: MountKind::Tmpfs,
        target: target(inside).map_err(wrong)?,
        ..MountSpec::default()
    };
    for option in options.split(',').filter(|option| !option.is_empty()) {
        let word = match option.split_once('=') {
            Some(("size", value)) if !value.ends_with('%') => {
                format!("size={}", size(value).map_err(wrong)?)
            }
            _ => option.to_owned(),
        };
        match word.as_str() {
            "ro" => spec.read_only = true,
            "rw" => spec.read_only = false,
            word => spec.options.add(MountKind::Tmpfs, word).map_err(wrong)?,
        }
    }
    Ok(MountRequest::of(spec))
}

/// `--device HOST[:CONTAINER[:PERMISSIONS]]`.
pub fn device(text: &str) -> Result<DeviceSpec> {
    let wrong = |why: &str| {
        Error::invalid(format!("--device '{text}': {why}"))
            .with_hint("write --device /dev/NAME[:/dev/NAME[:rwm]]")
    };
    let parts: Vec<&str> = text.split(':').collect();
    let is_access = |text: &str| !text.is_empty() && text.chars().all(|c| "rwm".contains(c));
    let (source, inside, access) = match parts.as_slice() {
        [source] => (*source, *source, "rwm"),
        [source, access] if is_access(access) => (*source, *source, *access),
        [source, inside] => (*source, *inside, "rwm"),
        [source, inside, access] if is_access(access) => (*source, *inside, *access),
        _ => return Err(wrong("the permissions are some of r, w, m")),
    };
    if !source.starts_with('/') || !inside.starts_with('/') {
        return Err(wrong("devices are named by absolute paths"));
    }
    // A directory stands for the devices in it (`/dev/dri`, `/dev/infiniband`).
    match Path::new(source).metadata().map(|meta| meta.file_type()) {
        Err(_) => return Err(wrong("there is no such device on this host")),
        Ok(kind) if kind.is_char_device() || kind.is_block_device() || kind.is_dir() => {}
        Ok(_) => return Err(wrong("this is not a device; files are mounted with -v")),
    }
    Ok(DeviceSpec { source: source.into(), target: inside.into(), access: access.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here() -> &'static Path {
        Path::new("/home/me")
    }

    fn bind(source: &str, target: &str, read_only: bool) -> MountSpec {
        MountSpec {
            source: source.into(),
            target: target.into(),
            read_only,
            ..MountSpec::default()
        }
    }

    #[test]
    fn volumes() {
        let spec = |text| volume(text, Some(here())).unwrap().spec;
        let made = |spec| MountSpec { create_source: true, ..spec };
        assert_eq!(spec("/a:/b"), made(bind("/a", "/b", false)));
        assert_eq!(spec("/a:/b/../c/:ro,z"), made(bind("/a", "/c", true)));
        assert_eq!(spec("./a:/b"), made(bind("/home/me/./a", "/b", false)));
        let named = volume("data:/b:ro,nocopy", Some(here())).unwrap();
        assert_eq!(named.spec.name.as_deref(), Some("data"));
        assert!(named.spec.read_only && named.no_copy && named.spec.kind == MountKind::Volume);
        assert!(volume("/b", Some(here())).unwrap().spec.unnamed);
        assert_eq!(spec("/a:/b:rslave,noexec").options.words(), ["noexec", "rslave"]);
        assert_eq!(spec("/a:/b:private").options.words(), ["rprivate"]);
        for (text, part) in [
            ("a/b:/c", "./a/b"),
            ("~/x:/c", "$HOME"),
            ("/a:b", "absolute"),
            ("/a:/", "--rootfs"),
            ("/a:/b:ro:x", "too many"),
            ("/a:/b:rx", "unknown option 'rx'"),
            ("/a:/b:rshared", "without privilege"),
            (":/b", "empty"),
        ] {
            let report = volume(text, Some(here())).unwrap_err().to_string();
            assert!(report.contains(part), "{text}: {report}");
        }
    }

    #[test]
    fn mounts() {
        let spec = |text| mount(text, Some(here())).unwrap().spec;
        assert_eq!(spec("type=bind,src=/a:b,dst=/c,ro"), bind("/a:b", "/c", true));
        assert_eq!(
            spec("type=bind,\"src=/a,b\",target=/c,readonly=false"),
            bind("/a,b", "/c", false)
        );
        assert_eq!(spec("type=bind,source=x,destination=/c"), bind("/home/me/x", "/c", false));
        let memory = spec("type=tmpfs,dst=/t,tmpfs-size=1m,tmpfs-mode=1777");
        assert_eq!(memory.options.words(), ["size=1048576", "mode=1777"]);
        assert_eq!(spec("src=v,dst=/c").name.as_deref(), Some("v"));
        for text in [
            "type=bind,dst=/c",
            "type=x,dst=/c",
            "type=bind,src=/a",
            "src=/a,dst=/c",
            "type=tmpfs,src=a,dst=/b",
            "k=v,dst=/c",
        ] {
            assert!(mount(text, Some(here())).is_err(), "{text}");
        }
    }

    #[test]
    fn a_lost_directory_is_missed_by_relative_paths_alone() {
        assert_eq!(volume("/a:/b", None).unwrap().spec.source, Path::new("/a"));
        assert!(volume("a:/b", None).is_ok() && mount("type=bind,src=/a,dst=/b", None).is_ok());
        for lost in [volume("./a:/b", None), mount("type=bind,src=a,dst=/b", None)] {
            let text = lost.unwrap_err().to_string();
            assert!(text.contains("directory is gone"), "{text}");
        }
    }

    #[test]
    fn one_mount_for_each_target() {
        let of = |texts: &[&str]| {
            let all = texts.iter().map(|text| match text.strip_prefix("tmpfs ") {
                Some(text) => tmpfs(text).unwrap(),
                None => volume(text, Some(here())).unwrap(),
            });
            distinct(all.collect()).map(|all| all.len()).map_err(|error| error.to_string())
        };
        assert_eq!(of(&["/a:/x", "/b:/y"]), Ok(2));
        for alike in [
            ["/a:/x", "/a:/x/"],
            ["/x", "/a:/x"],
            ["/a:/x", "/x"],
            ["/x", "tmpfs /x"],
            ["tmpfs /x", "tmpfs /x:size=1m"],
        ] {
            assert_eq!(of(&alike), Ok(1), "{alike:?}");
        }
        for differing in [["/a:/x", "/b:/x"], ["/a:/x", "v:/x"], ["/a:/x", "tmpfs /y/../x"]] {
            assert_eq!(of(&differing), Err("Duplicate mount point: /x".into()), "{differing:?}");
        }
        let written = mount("type=bind,src=/a,dst=/x", Some(here())).unwrap();
        assert_eq!(
            distinct(vec![volume("/a:/x", Some(here())).unwrap(), written]).unwrap().len(),
            1
        );
        let [first, last] = ["v:/x", "v:/x:ro"].map(|text| volume(text, Some(here())).unwrap());
        assert!(distinct(vec![first, last]).is_err());
    }

    #[test]
    fn memory_and_devices() {
        assert_eq!(tmpfs("/t").unwrap().spec.target, Path::new("/t"));
        let options = tmpfs("/t:size=64k,mode=700,noexec,ro").unwrap().spec;
        assert!(options.read_only);
        assert_eq!(options.options.words(), ["noexec", "size=65536", "mode=700"]);
        assert!(tmpfs("/t:colour=red").is_err());
        let null = device("/dev/null").unwrap();
        assert_eq!((null.target, null.access.as_str()), ("/dev/null".into(), "rwm"));
        assert_eq!(device("/dev/null:r").unwrap().access, "r");
        assert_eq!(device("/dev/null:/dev/x:rw").unwrap().target, Path::new("/dev/x"));
        assert!(
            device("/dev/none").is_err()
                && device("null").is_err()
                && device("/dev/null:/dev/x:q").is_err()
        );
    }
}
