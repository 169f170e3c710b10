use super::value::{Duration, SettingValue, Size};
use super::*;

fn sources(files: Vec<PathBuf>, environment: &[(&str, &str)]) -> Sources {
    Sources {
        files,
        named_file: None,
        environment: environment.iter().map(|(name, value)| (name.into(), value.into())).collect(),
        home: Some("/home/ada".into()),
        directory: Some("/work".into()),
    }
}

/// `key = value (origin)` of every setting that is not at its default, with the directory of the
/// test taken out.
fn changed(config: &Config, directory: &Path) -> String {
    let lines: Vec<String> = config
        .entries()
        .filter(|entry| entry.origin != Origin::Default)
        .map(|entry| format!("{} = {} ({})", entry.key, entry.text, entry.origin))
        .chain(config.warnings().iter().map(|warning| format!("warning: {warning}")))
        .collect();
    lines.join("\n").replace(&directory.display().to_string(), "DIR")
}

#[test]
fn defaults_follow_the_home_directory() {
    let config = Config::load(&sources(vec![], &[])).unwrap();
    assert_eq!(config.settings().store_dir, Some("/home/ada/.local/share/coracle".into()));
    assert_eq!(config.settings().auth_file, Some("/home/ada/.config/coracle/auth.json".into()));
    assert_eq!(changed(&config, Path::new("/nowhere")), "");
}

#[test]
fn a_home_that_does_not_exist_leaves_the_store_open() {
    let nothing = Sources::usual([], None, None);
    assert_eq!(nothing.files, [PathBuf::from(SYSTEM_FILE)]);
    let config = Config::load(&Sources::default()).unwrap();
    assert_eq!(config.settings().store_dir, None);
}

#[test]
fn later_layers_win_and_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let site = directory.path().join("site.toml");
    let user = directory.path().join("user.toml");
    std::fs::write(
        &site,
        "# the site's\n\
         [store]\nread-only = [\"/sw/images\", \"/sw/more\"]\n\
         [registry]\ndefault = \"registry.example.org\"\ninsecure = \"10.0.0.1:5000\"\nparallel-downloads = 2\n\
         [registry.mirrors]\n\"docker.io\" = [\"mirror.example.org\"]\n",
    )
    .unwrap();
    std::fs::write(
        &user,
        "[registry]\nparallel_downloads = 12\ntimeout = 5\n[log]\nmax-size = \"4MiB\"\n[run]\nisolate = true\n",
    )
    .unwrap();
    let environment = [
        ("CORACLE_DIR", "/scratch/ada"),
        ("no_proxy", "localhost, .example.org"),
        ("NO_COLOR", "1"),
    ];
    let mut config = Config::load(&sources(vec![site, user], &environment)).unwrap();
    config.set_flag("run.isolate", "no", "--isolate").unwrap();
    insta::assert_snapshot!(changed(&config, directory.path()), @r#"
    store.dir = /scratch/ada (environment CORACLE_DIR)
    store.read-only = /sw/images:/sw/more (DIR/site.toml:3)
    run.isolate = false (flag --isolate)
    registry.default = registry.example.org (DIR/site.toml:5)
    registry.insecure = 10.0.0.1:5000 (DIR/site.toml:6)
    registry.mirrors = docker.io=mirror.example.org (DIR/site.toml:8)
    registry.no-proxy = localhost,.example.org (environment no_proxy)
    registry.parallel-downloads = 12 (DIR/user.toml:2)
    registry.timeout = 5s (DIR/user.toml:3)
    log.max-size = 4m (DIR/user.toml:5)
    output.colour = never (environment NO_COLOR)
    "#);
    assert_eq!(config.settings().parallel_downloads.get(), 12);
}

#[test]
fn unknown_keys_warn_with_file_line_and_the_nearest_name() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("config.toml");
    std::fs::write(
        &file,
        "colour = \"never\"\n\n[registry]\ntls-verfiy = false\n[log]\nmax_sise = 1\n[fleet]\nshape = \"round\"\n",
    )
    .unwrap();
    let environment = [("CORACLE_DRI", "/x"), ("CORACLE_TEST_SUITE", "yes")];
    let config = Config::load(&sources(vec![file], &environment)).unwrap();
    insta::assert_snapshot!(changed(&config, directory.path()), @r#"
    warning: DIR/config.toml:1: unknown key "colour", did you mean "output.colour"?
    warning: DIR/config.toml:4: unknown key "registry.tls-verfiy", did you mean "registry.tls-verify"?
    warning: DIR/config.toml:6: unknown key "log.max_sise", did you mean "log.max-size"?
    warning: DIR/config.toml:8: unknown key "fleet.shape" (see `coracle config`)
    warning: environment: unknown variable CORACLE_DRI, did you mean "CORACLE_DIR"?
    "#);
    assert!(config.settings().tls_verify, "a misspelt key changes nothing");
}

#[test]
fn wrong_values_are_errors_that_say_what_is_wanted() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("config.toml");
    let tell = |text: &str| {
        std::fs::write(&file, text).unwrap();
        let error = Config::load(&sources(vec![file.clone()], &[])).unwrap_err();
        let hint = error.hint().map(|hint| format!("\nhint: {hint}")).unwrap_or_default();
        format!("{error}{hint}").replace(&directory.path().display().to_string(), "DIR")
    };
    let told: Vec<String> = [
        "[registry]\ntls-verify = \"False\"\n",
        "[registry]\nparallel-downloads = 0\n",
        "[log]\nmax-size = \"many\"\n",
        "[run]\npull = \"sometimes\"\n",
        "[store]\ndir = \"images\"\n",
        "[store]\ndir = \"/scratch/$NOBODY\"\n",
        "[store\n",
        "[run]\nisolate = true\nisolate = false\n",
    ]
    .map(tell)
    .into();
    insta::assert_snapshot!(told.join("\n"), @r#"
    DIR/config.toml:2: registry.tls-verify cannot be "False": wanted true or false, without quotes
    hint: registry.tls-verify: Check the certificates of registries.
    DIR/config.toml:2: registry.parallel-downloads cannot be 0: wanted a number from 1 to 64
    hint: registry.parallel-downloads: How many layers are fetched at once.
    DIR/config.toml:2: log.max-size cannot be "many": wanted a size, such as 512k, 10m, 4g, or unlimited
    hint: log.max-size: Size at which a container's log is rotated.
    DIR/config.toml:2: run.pull cannot be "sometimes": wanted one of missing, always, never, newer
    hint: run.pull: When `run` and `create` fetch an image.
    DIR/config.toml:2: store.dir cannot be "images": wanted an absolute path
    hint: store.dir: Where images and containers are kept.
    DIR/config.toml:2: store.dir cannot be "/scratch/$NOBODY": the variable NOBODY is not set
    hint: store.dir: Where images and containers are kept.
    DIR/config.toml:1: unclosed table, expected `]`
    DIR/config.toml:3: duplicate key
    "#);
}

#[test]
fn wrong_variables_name_the_variable() {
    let error = Config::load(&sources(vec![], &[("CORACLE_ISOLATE", "perhaps")])).unwrap_err();
    insta::assert_snapshot!(error, @r#"environment CORACLE_ISOLATE: run.isolate cannot be "perhaps": wanted true or false"#);
}

#[test]
fn a_file_that_was_named_must_exist() {
    let named =
        Sources { named_file: Some("/nonexistent/coracle.toml".into()), ..Sources::default() };
    let error = Config::load(&named).unwrap_err();
    assert!(error.hint().is_some_and(|hint| hint.contains("CORACLE_CONFIG")));
}

#[test]
fn one_key() {
    let config = Config::load(&sources(vec![], &[])).unwrap();
    assert_eq!(config.entry("log.max_file").unwrap().text, "3");
    let error = config.entry("log.maxfile").unwrap_err();
    insta::assert_snapshot!(format!("{error}\n{}", error.hint().unwrap()), @r#"
    there is no setting "log.maxfile"
    did you mean "log.max-file"? `coracle config` lists all settings
    "#);
}

#[test]
fn every_setting_survives_the_way_through_text_and_has_a_description() {
    let mut settings = Settings::default();
    for setting in SETTINGS {
        let text = (setting.text)(&settings);
        if !text.is_empty() {
            (setting.set_text)(&mut settings, &text)
                .unwrap_or_else(|wanted| panic!("{}: {wanted}", setting.key));
        }
        assert!(setting.summary().ends_with(['.', ')']), "{}: {}", setting.key, setting.summary());
        assert!(manual_section().contains(&setting.key.replace('-', "\\-")));
    }
    assert_eq!(settings, Settings::default());
}

#[test]
fn sizes_and_durations() {
    assert_eq!(Size::from_text("10m"), Ok(Size(Some(10 << 20))));
    assert_eq!(Size::from_text("10 MB"), Ok(Size(Some(10 << 20))));
    assert_eq!(Size::from_text("7"), Ok(Size(Some(7))));
    assert_eq!(Size::from_text("unlimited"), Ok(Size(None)));
    assert!(Size::from_text("99999999t").is_err(), "does not fit");
    assert!(Size::from_text("-1").is_err());
    assert_eq!(Duration::from_text("2m").map(|duration| duration.text()), Ok("120s".into()));
    assert!(Duration::from_text("soon").is_err());
}

#[test]
fn paths_are_each_users_own_in_files_and_relative_in_variables() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("config.toml");
    std::fs::write(
        &file,
        "[store]\ndir = \"/scratch/$USER/coracle\"\n[registry]\nauth-file = \"~/auth.json\"\n",
    )
    .unwrap();
    let environment = [("USER", "ada"), ("CORACLE_STORE_RO", "shared:/sw/images")];
    let config = Config::load(&sources(vec![file], &environment)).unwrap();
    insta::assert_snapshot!(changed(&config, directory.path()), @r#"
    store.dir = /scratch/ada/coracle (DIR/config.toml:2)
    store.read-only = /work/shared:/sw/images (environment CORACLE_STORE_RO)
    registry.auth-file = /home/ada/auth.json (DIR/config.toml:4)
    "#);
}
