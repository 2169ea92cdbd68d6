package main

import (
	"bytes"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/cmd/internal/daemon"
)

func TestExitCodes(t *testing.T) {
	self, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}

	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "master"), []byte("publish_port: 70000\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	saltfile := filepath.Join(dir, "file of options")
	if err := os.WriteFile(saltfile,
		[]byte("salt-master:\n  config_dir: "+dir+"\n  log_level: debug\nsalt:\n  nosuch: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	elsewhere := filepath.Join(dir, "elsewhere")
	if err := os.WriteFile(elsewhere, []byte("salt-master: {config_dir: /nosuch, check: true}\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	foreign := filepath.Join(dir, "foreign")
	if err := os.WriteFile(foreign, []byte("salt-master:\n  worker_threads: 3\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	for _, c := range []struct {
		args      []string
		code      int
		out, errs string
	}{
		{[]string{"--versions-report"}, daemon.ExitOK, "          Salt: 3008.3\n", ""},
		{[]string{"-V"}, daemon.ExitOK, "            Go: ", ""},
		// of the folder that it names
		{[]string{"--saltfile", saltfile}, daemon.ExitConfig, "", "70000 is not a port"},
		// the command line counts
		{[]string{"--saltfile=" + elsewhere, "-c", dir}, daemon.ExitConfig, "", "70000 is not a port"},
		{[]string{"--saltfile", foreign}, daemon.ExitUsage, "", "worker_threads is no option"},
		{[]string{"--saltfile", "/nosuch/file"}, daemon.ExitUsage, "", "read the Saltfile"},
		{[]string{"--disable-keepalive", "-c", dir}, daemon.ExitConfig, "", "70000 is not a port"},
		{[]string{"--help"}, daemon.ExitOK, "Usage: salt-master", ""},
		{[]string{"--version"}, daemon.ExitOK, "salt-master ", ""},
		{[]string{"--nonsense"}, daemon.ExitUsage, "", "unknown flag"},
		{[]string{"one"}, daemon.ExitUsage, "", `unexpected argument "one"`},
		{[]string{"-c", dir}, daemon.ExitConfig, "", "70000 is not a port"},
		{[]string{"-c", dir, "-u", self.Username}, daemon.ExitConfig, "", "70000 is not a port"},
		{[]string{"-c", dir, "-u", "no-such-user"}, daemon.ExitUsage, "", "does not change its user"},
	} {
		var out, errs bytes.Buffer
		if code := run(c.args, &out, &errs); code != c.code || !strings.Contains(out.String(), c.out) ||
			!strings.Contains(errs.String(), c.errs) {
			t.Errorf("%q: code %d, want %d\n%s%s", c.args, code, c.code, &out, &errs)
		}
	}
}

// TestSaltfilesAreFound where Salt looks for them, in its order.
func TestSaltfilesAreFound(t *testing.T) {
	home, work := t.TempDir(), t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("SALT_SALTFILE", "")
	t.Chdir(work)
	write := func(path, option string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}

		if err := os.WriteFile(path,
			[]byte("salt-master: {pidfile: /run/x, log_level_logfile: debug, "+option+": x}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	named := filepath.Join(home, "named")
	write(named, "of_the_environment")
	for _, c := range []struct {
		name string
		set  func()
		errs string
	}{
		{"a folder of that name", func() { write(filepath.Join(work, "Saltfile", "x"), "x") }, "70000 is not a port"},
		{"of the user", func() { write(filepath.Join(home, ".salt", "Saltfile"), "of_the_user") },
			"of_the_user is no option"},
		{"of the working directory", func() {
			_ = os.RemoveAll(filepath.Join(work, "Saltfile"))
			write(filepath.Join(work, "Saltfile"), "of_the_folder")
		}, "of_the_folder is no option"},
		{"of the environment", func() { t.Setenv("SALT_SALTFILE", named) }, "of_the_environment is no option"},
	} {
		c.set()
		if err := os.WriteFile(filepath.Join(work, "master"), []byte("publish_port: 70000\n"), 0o600); err != nil {
			t.Fatal(err)
		}

		var out, errs bytes.Buffer
		if code := run([]string{"-c", work}, &out, &errs); code == daemon.ExitOK || !strings.Contains(errs.String(), c.errs) {
			t.Errorf("%s: code %d\n%s%s", c.name, code, &out, &errs)
		}
	}
}

// The first step of a move: nothing is started, everything is said at once.
func TestCheck(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	check := func(args ...string) (int, string, string) {
		var out, errs bytes.Buffer
		code := run(append([]string{"--check", "-c"}, args...), &out, &errs)
		return code, strings.ReplaceAll(out.String(), dir, "DIR"), strings.ReplaceAll(errs.String(), dir, "DIR")
	}

	if code, out, errs := check(dir); code != daemon.ExitConfig || out != "" ||
		!strings.Contains(errs, "there is no file DIR/master") {
		t.Errorf("no file: %d %q %q", code, out, errs)
	}

	put("master.d/a.conf", "id: m1\n") // as the packages leave it on a host without Salt
	if code, out, errs := check(dir); code != daemon.ExitOK ||
		!strings.HasPrefix(out, "DIR/master.d/a.conf is right: 1 file read, id m1, ports 4505 and 4506\n") || errs != "" {
		t.Errorf("master.d alone: %d %q %q", code, out, errs)
	}

	if code, out, errs := check(dir + "/mastr"); code != daemon.ExitConfig || out != "" ||
		!strings.Contains(errs, "there is no file DIR/mastr") {
		t.Errorf("a name that is not there: %d %q %q", code, out, errs)
	}

	put("master", "id: m1\nworker_threads: 9\nfile_recv: 1\nkeep_jobs: 48\nroot_dir: "+dir+"/root\n")
	put("master.d/a.conf", "cache: redis\nmy_own: 1\npillar_raise_on_missing: true\nssh_user: root\n")
	began := time.Now()
	code, out, errs := check(dir)

	if took := time.Since(began); took > time.Second {
		t.Errorf("the check took %s", took)
	}

	want := "DIR/master is right: 2 files read, id m1, ports 4505 and 4506\n" +
		"warning: DIR/master:3: option file_recv: expected true or false, found the number 1; it is taken for true\n" +
		"warning: DIR/master:4: option keep_jobs: Salt 3008 does not read the option, nor does this master; write keep_jobs_seconds: 172800\n" +
		"warning: DIR/master.d/a.conf:1: option cache: option is not used by this master: minion data is kept in files as by localfs\n" +
		"used: DIR/master:1: option id\n" +
		"not used: DIR/master:2: option worker_threads: requests share one bounded pool\n" +
		"used: DIR/master:3: option file_recv\n" +
		"not by the master: DIR/master:4: option keep_jobs: read by no program since Salt 3008; a warning says what to write for keep_jobs_seconds\n" +
		"used: DIR/master:5: option root_dir\n" +
		"not used: DIR/master.d/a.conf:1: option cache: minion data is kept in files as by localfs\n" +
		"not known: DIR/master.d/a.conf:2: option my_own: kept for renderers and modules\n" +
		"through Python: DIR/master.d/a.conf:3: option pillar_raise_on_missing\n" +
		"not by the master: DIR/master.d/a.conf:4: option ssh_user: Python's salt-ssh\n"
	if code != exitWarnings || out != want || errs != "" {
		t.Errorf("%d\n%s%s\nwant:\n%s", code, out, errs, want)
	}

	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("the check made something: %v %v", left, err)
	}

	put("only/master", "id: m1\nworker_threads: 9\nuser: nobody-else\n")
	if code, out, _ := check(dir + "/only"); code != map[bool]int{
		true:  daemon.ExitOK,
		false: exitWarnings,
	}[os.Geteuid() == 0] || !strings.Contains(out, "only/master:3: option user: this process runs as") {
		t.Errorf("another user: %d %s", code, out)
	}

	put("master.d/b.conf",
		"fileserver_backend: [gitfs]\ngitfs_remotes: ['https://u:TOPSECRET@h/x': [{nosuch: 1}]]\next_pillar: [{git: ['master ext::x']}]\n")
	code, out, errs = check(dir)
	if code != daemon.ExitConfig || out != "" || !strings.Contains(errs, "there is no option \"nosuch\"") ||
		!strings.Contains(errs, "not the URL") || strings.Contains(errs, "TOPSECRET") {
		t.Errorf("wrong remotes: %d %q\n%s", code, out, errs)
	}

	put("master.d/b.conf", "timeout: 15s\nfileserver_backend: [svn]\n")
	put("master.d/c.conf", "a: b: c\n")
	code, out, errs = check(filepath.Join(dir, "master"))
	lines := strings.Split(strings.TrimSpace(errs), "\n")
	if code != daemon.ExitConfig || out != "" || len(lines) != 4 ||
		!strings.HasPrefix(lines[1], "DIR/master.d/b.conf:1: option timeout: ") ||
		!strings.HasPrefix(lines[2], "DIR/master.d/b.conf:2: option fileserver_backend: ") || !strings.HasPrefix(lines[3], "DIR/master.d/c.conf:1: mapping values") {
		t.Errorf("%d %q\n%s", code, out, errs)
	}
}
