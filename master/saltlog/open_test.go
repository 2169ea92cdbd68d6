package saltlog

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "logs", "master")
	for name, tt := range map[string]struct {
		console, file []string
		path          string
		want          [2]string // on the console, in the file
		err           string
	}{
		"nothing said": {nil, nil, path, [2]string{"warn", "warn"}, ""},
		"first that is said": {[]string{"", "info", "debug"}, []string{"", "", "error"}, path,
			[2]string{"info warn", ""}, ""},
		"quiet file":       {[]string{"info"}, []string{"quiet"}, path, [2]string{"info warn", ""}, ""},
		"no file":          {nil, []string{"info"}, "", [2]string{"warn", ""}, ""},
		"wrong console":    {[]string{"loud"}, nil, path, [2]string{}, "loud"},
		"wrong file":       {nil, []string{"loud"}, path, [2]string{}, "loud"},
		"no folder":        {nil, nil, "/dev/null/logs/master", [2]string{}, "folder"},
		"no such facility": {nil, nil, "udp://log/LOG_X", [2]string{}, "LOG_X"},
	} {
		t.Run(name, func(t *testing.T) {
			_ = os.Remove(path)
			var console bytes.Buffer
			log, f, err := Open(Config{
				Name:    "salt.test",
				Stderr:  &console,
				Console: Output{Levels: tt.console, Format: "%(message)s"},
				File:    Output{Levels: tt.file, Format: "%(message)s"},
				Path:    tt.path,
			})
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Fatal(err)
			}
			if err != nil {
				return
			}

			log.Log(t.Context(), slog.LevelInfo, "info")
			log.Log(t.Context(), slog.LevelWarn, "warn")
			var text []byte
			if f != nil {
				text, err = os.ReadFile(path)
				if cerr := f.Close(); err != nil || cerr != nil {
					t.Errorf("%v, %v", err, cerr)
				}
			}

			got := [2]string{strings.Join(strings.Fields(console.String()), " "),
				strings.Join(strings.Fields(string(text)), " ")}
			if got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

// TestRelativeLogFile (M5): a path that is not absolute means a file, too.
func TestRelativeLogFile(t *testing.T) {
	t.Chdir(t.TempDir())
	log, f, err := Open(Config{
		Name:    "salt.test",
		Stderr:  os.Stderr,
		Console: Output{Levels: []string{"quiet"}},
		Path:    "logs/master",
	})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()

	log.Warn("here")
	if b, err := os.ReadFile("logs/master"); err != nil || !strings.Contains(string(b), "here") {
		t.Errorf("%q, %v", b, err)
	}
}

// TestMovedLogFile (M5): after logrotate has moved or removed the file, the next line goes to a new
// file, without a signal. If no new file can be created, lines continue to go to the old one, and
// the reason is reported once.
func TestMovedLogFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	path := filepath.Join(dir, "master")
	var stderr bytes.Buffer
	log, f, err := Open(Config{
		Name:    "salt.test",
		Stderr:  &stderr,
		Console: Output{Levels: []string{"quiet"}},
		File:    Output{Format: "%(message)s"},
		Path:    path,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()

	move := func(from, to string) {
		t.Helper()
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}

	holds := func(path, want string) {
		t.Helper()
		if b, err := os.ReadFile(path); err != nil || string(b) != want {
			t.Errorf("%s holds %q, %v, not %q", path, b, err, want)
		}
	}

	log.Warn("one")
	move(path, path+".1")
	log.Warn("two")
	if err := os.WriteFile(path+".new", nil, 0o640); err != nil {
		t.Fatal(err)
	}

	move(path+".new", path) // logrotate's create
	log.Warn("three")
	holds(path+".1", "one\n")
	holds(path, "three\n")

	move(dir, dir+".away")
	if err := os.WriteFile(dir, nil, 0o600); err != nil { // no folder can be there
		t.Fatal(err)
	}

	log.Warn("four")
	log.Warn("five")
	if n := strings.Count(stderr.String(), "lines go on into the file that was moved away"); n > 1 {
		t.Errorf("said %d times: %s", n, &stderr)
	}

	holds(dir+".away/master", "three\nfour\nfive\n")
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}

	log.Warn("six")
	holds(path, "six\n")
}

// TestGranularLevels: the level of a logger applies to the loggers below it, in addition to the
// level of the sink.
func TestGranularLevels(t *testing.T) {
	g := granularLevels{}
	for logger, level := range map[string]any{
		"salt":           "error",
		"salt.auth":      "debug",
		"salt.auth.file": int64(20),
		"salt.key":       "all",
		"":               "critical",
	} {
		if err := g.setLevel(logger, level); err != nil {
			t.Fatal(err)
		}
	}

	for logger, want := range map[string]slog.Level{
		"salt.master": slog.LevelError, "salt": slog.LevelError, "salt.auth": slog.LevelDebug, "salt.auth.ldap": slog.LevelDebug,
		"salt.auth.file": slog.LevelInfo, "salt.authx": slog.LevelError, "salt.key": slog.LevelError, "other.auth": LevelCritical,
	} {
		if got := g.levelOf(logger); got != want {
			t.Errorf("%s: %v, want %v", logger, got, want)
		}
	}

	for _, bad := range []any{"loud", 1.5, nil, []any{}} {
		if CheckGranular("salt", bad) == nil {
			t.Errorf("%v is a level", bad)
		}
	}

	var out bytes.Buffer
	log, _, err := Open(Config{
		Name:     "salt.test",
		Stderr:   &out,
		Console:  Output{Levels: []string{"info"}, Format: "%(name)s %(message)s"},
		Granular: map[string]any{"salt.test": "error", "wrong": "loud"},
	})
	if err != nil {
		t.Fatal(err)
	}

	log.Warn("left out")
	log.Error("there")
	if out.String() != "salt.test there\n" {
		t.Errorf("%q", out.String())
	}
}

// TestLoggersAreSalts: the package that logs a line determines the line's logger, which has the
// name of a Salt module.
func TestLoggersAreSalts(t *testing.T) {
	for function, want := range map[string]string{
		"saltern/master.(*Master).Run":                        "salt.master",
		"saltern/master/internal/reactor.(*Engine).run.func1": "salt.utils.reactor",
		"saltern/master/internal/gitfs.New":                   "salt.utils.gitfs",
		"saltern/master/keys.(*Store).Accept":                 "salt.key",
		"main.serve":                                          "salt.master",
	} {
		if got := loggerOf(function, "salt.master"); got != want {
			t.Errorf("%s: %s, want %s", function, got, want)
		}
	}
}
