package observe

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/internal/control"
	"saltern/supervisor/status"
	"saltern/test/controltest"
)

func TestConditionsOfTheStorage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "conditions.json")
	c := conditions{path: path}
	now := time.Unix(1e9, 0)
	problems := []status.Problem{
		{
			Code:     status.VolumeFull,
			Severity: status.Warning,
			Title:    "the shared volume is full",
			Cause:    "0.1 %",
			Next:     "delete",
		},
		{Code: status.HealPending, Severity: status.Notice, Title: "a notice"},
		{Code: status.MasterDown, Severity: status.Fatal, Title: "no matter of the storage"},
		{Code: status.ClockSkew, Severity: status.Warning, Title: "clocks differ"},
	}

	read := func() string {
		t.Helper()
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}

	if err := c.writeIfDue(now, problems); err != nil {
		t.Fatal(err)
	}

	want := read()
	controltest.Recorded(t, "conditions.json", []byte(want), *update)
	if err := os.WriteFile(path, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}

	if err := c.writeIfDue(now.Add(time.Second), problems); err != nil || read() != "old" {
		t.Errorf("written although nothing changed: %v %s", err, read())
	}

	if err := c.writeIfDue(now.Add(control.ConditionsEvery), problems); err != nil || read() != want {
		t.Errorf("not renewed: %v %s", err, read())
	}

	if err := c.writeIfDue(now.Add(control.ConditionsEvery+1), nil); err != nil || !strings.Contains(read(), "[]") {
		t.Errorf("%v %s", err, read())
	}

	c.path = filepath.Join(path, "x")
	if err := c.writeIfDue(now.Add(2*control.ConditionsEvery), problems); err == nil {
		t.Error("no error for a file that cannot be written")
	}
}
