package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"saltern/cmd/internal/daemon"
)

// TestOptionsAsSalt: our salt-master knows every option of Salt's salt-master by both names, and
// each takes a value if Salt's does (finding F8: -V, --versions-report, --saltfile and
// --disable-keepalive were unknown).
func TestOptionsAsSalt(t *testing.T) {
	python := os.Getenv("SALTERN_PYTHON")
	if python == "" {
		t.Skip("SKIPPED: set SALTERN_PYTHON to a Python with Salt's library")
	}
	salt := filepath.Join(filepath.Dir(python), "salt-master")
	help, err := exec.Command(salt, "--help").Output()
	if err != nil {
		t.Fatalf("Salt's salt-master --help: %v", err)
	}

	_, flags, err := parse(nil, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}

	// A line such as "  -c CONFIG_DIR, --config-dir=CONFIG_DIR".
	lines := regexp.MustCompile(`(?m)^ +(?:-(\w)(?: \S+)?, )?--([a-z-]+)(=\S+)?`).FindAllStringSubmatch(string(help), -1)
	if len(lines) < 10 {
		t.Fatalf("only %d options in Salt's help:\n%s", len(lines), help)
	}
	for _, line := range lines {
		short, long, takesValue := line[1], line[2], line[3] != ""
		flag := flags.Lookup(long)
		if flag == nil {
			t.Errorf("--%s is unknown", long)
			continue
		}
		if flag.Shorthand != short {
			t.Errorf("--%s is -%s, with Salt -%s", long, flag.Shorthand, short)
		}
		if (flag.NoOptDefVal == "") != takesValue {
			t.Errorf("--%s takes a value: %v, with Salt %v", long, !takesValue, takesValue)
		}
	}
}

// TestVersionsReportAsSalt: the report has Salt's heading and names the same Salt, where programs
// look for it.
func TestVersionsReportAsSalt(t *testing.T) {
	python := os.Getenv("SALTERN_PYTHON")
	if python == "" {
		t.Skip("SKIPPED: set SALTERN_PYTHON to a Python with Salt's library")
	}
	theirs, err := exec.Command(filepath.Join(filepath.Dir(python), "salt-master"), "-V").Output()
	if err != nil {
		t.Fatalf("Salt's salt-master -V: %v", err)
	}
	first := func(report string) string {
		return strings.Join(strings.SplitN(report, "\n", 3)[:2], "\n")
	}

	for _, option := range []string{"-V", "--versions-report"} {
		var out, errs bytes.Buffer
		if code := run([]string{option}, &out, &errs); code != daemon.ExitOK || errs.Len() > 0 {
			t.Errorf("%s: exit code %d, %q", option, code, &errs)
		}
		if got, want := first(out.String()), first(string(theirs)); got != want {
			t.Errorf("%s begins with %q, Salt's with %q", option, got, want)
		}
	}
}
