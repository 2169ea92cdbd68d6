package keyboard

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"saltern/internal/command"
)

// loader notes what would be run; it fails for maps that it does not have.
type loader struct {
	ran  []string
	fail bool
}

func (l *loader) Run(_ context.Context, argv []string) (command.Output, error) {
	l.ran = append(l.ran, strings.Join(argv, " "))
	if l.fail {
		return command.Output{Exit: 1, Stderr: []byte("cannot open file xx")}, nil
	}
	return command.Output{}, nil
}

func TestSet(t *testing.T) {
	l := &loader{}
	k := Keyboard{File: filepath.Join(t.TempDir(), "vconsole.conf"), Run: l}
	if now := k.Now(); now != "us" {
		t.Errorf("a machine that nobody chose a layout for has %q", now)
	}

	if err := k.Set(t.Context(), "de"); err != nil || len(l.ran) != 1 ||
		l.ran[0] != "loadkeys -q -C /dev/tty0 de-latin1-nodeadkeys" {
		t.Errorf("%v %q", err, l.ran)
	}

	if b, _ := os.ReadFile(k.File); !strings.Contains(string(b), "\nKEYMAP=de-latin1-nodeadkeys\n") || k.Now() != "de" {
		t.Errorf("%s: %q", b, k.Now())
	}

	l.fail = true
	if err := k.Set(t.Context(), "fr"); err == nil || !strings.Contains(err.Error(), "cannot open") || k.Now() != "de" {
		t.Errorf("a layout that cannot be loaded is kept: %v, %s", err, k.Now())
	}

	if err := k.Set(t.Context(), "xx; reboot"); err == nil || len(l.ran) != 2 {
		t.Errorf("%v %q", err, l.ran)
	}

	if err := os.WriteFile(k.File, []byte("FONT=x\nKEYMAP=\"dvorak\"\n"), 0o600); err != nil || k.Now() != "" {
		t.Errorf("%v, %q", err, k.Now())
	}
}

// TestScreensOnly: what sends characters has no layout.
func TestScreensOnly(t *testing.T) {
	for _, name := range []string{"ttyS0", "pts/3", "hvc0", "console", "ttyAMA0", "terminal", "tty", "xtty1"} {
		if screen.MatchString(name) || Has(name) {
			t.Errorf("%s has a keyboard", name)
		}
	}
	if !screen.MatchString("tty1") {
		t.Error("tty1 has none")
	}
}

// TestMapsExist: loadkeys reads each of the maps.
func TestMapsExist(t *testing.T) {
	if _, err := exec.LookPath("loadkeys"); err != nil {
		t.Skipf("NOT TESTED: %v (apt-get install kbd console-data)", err)
	}

	if _, err := os.Stat("/usr/share/keymaps"); err != nil {
		t.Skipf("NOT TESTED: %v (apt-get install console-data)", err)
	}

	names := map[string]bool{}
	for _, l := range layouts {
		if out, err := exec.Command("loadkeys", "--parse", l.keys).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", l.Name, err, out)
		}
		if names[l.Name] || l.Title == "" {
			t.Errorf("%+v", l)
		}
		names[l.Name] = true
	}
}
