// Package keyboard sets the layout of the keyboard at the machine's own screen, now and for later
// starts. A layout has no effect on serial lines, the terminals of virtual machines' managers and
// SSH, because they send characters, not keys.
package keyboard

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"saltern/internal/command"
	"saltern/supervisor/layout"
)

// Layout is one layout of keys.
type Layout struct {
	Name  string // short name, such as "de"
	Title string // name for people, such as "German"
	keys  string // name of the layout's keymap, for loadkeys(1)
}

var layouts = []Layout{
	{"us", "English (US)", "us"},
	{"uk", "English (UK)", "uk"},
	{"de", "German", "de-latin1-nodeadkeys"},
	{"ch-de", "Swiss German", "sg-latin1"},
	{"ch-fr", "Swiss French", "fr_CH-latin1"},
	{"fr", "French", "fr-latin9"},
	{"be", "Belgian", "be-latin1"},
	{"nl", "Dutch", "nl"},
	{"es", "Spanish", "es"},
	{"latam", "Spanish (Latin America)", "la-latin1"},
	{"pt", "Portuguese", "pt-latin1"},
	{"br", "Portuguese (Brazil)", "br-abnt2"},
	{"it", "Italian", "it"},
	{"dk", "Danish", "dk-latin1"},
	{"no", "Norwegian", "no-latin1"},
	{"se", "Swedish", "se-latin1"},
	{"fi", "Finnish", "fi-latin1"},
	{"pl", "Polish", "pl"},
	{"cz", "Czech", "cz-us-qwertz"},
	{"hu", "Hungarian", "hu"},
	{"jp", "Japanese", "jp106"},
}

// Keyboard is the keyboard of a machine. Its zero value is not usable, see [New]. Its methods must
// not be called concurrently.
type Keyboard struct {
	File string // path of the file with the layout: vconsole.conf(5)
	Run  command.Runner
}

// New returns the keyboard of this machine.
func New() Keyboard {
	return Keyboard{File: "/etc/vconsole.conf", Run: command.Exec{Limit: 10 * time.Second}}
}

// unit is the path of the unit that loads the layout when the machine starts. Only the image has
// that unit.
const unit = "/usr/lib/systemd/system/saltern-keyboard.service"

var screen = regexp.MustCompile(`^tty[0-9]+$`)

// Has reports whether a terminal of this machine (tty1, ttyS0, pts/3) has a keyboard whose layout
// this package can set.
func Has(terminal string) bool {
	if !screen.MatchString(terminal) {
		return false
	}
	_, err := os.Stat(unit)
	if err == nil {
		_, err = exec.LookPath("loadkeys")
	}
	return err == nil
}

// Layouts returns the layouts to choose from.
func (Keyboard) Layouts() []Layout { return layouts }

const prefix = "KEYMAP="

// Now returns the name of the layout in use, or "" if it is not one of Layouts.
func (k Keyboard) Now() string {
	b, err := os.ReadFile(k.File)
	if errors.Is(err, fs.ErrNotExist) {
		return layouts[0].Name
	}

	for line := range strings.Lines(string(b)) {
		keys, ok := strings.CutPrefix(strings.TrimSpace(line), prefix)
		if !ok {
			continue
		}

		for _, l := range layouts {
			if l.keys == strings.Trim(keys, `"'`) {
				return l.Name
			}
		}
	}

	return ""
}

// Set applies a layout and saves it.
func (k Keyboard) Set(ctx context.Context, name string) error {
	for _, l := range layouts {
		if l.Name != name {
			continue
		}

		if _, err := command.Do(ctx, k.Run, "loadkeys", "-q", "-C", "/dev/tty0", l.keys); err != nil {
			return fmt.Errorf("set the keyboard's layout: %w", err)
		}

		if _, err := layout.WriteFile(k.File,
			[]byte("# Written by the set-up; see loadkeys(1) for other layouts.\n"+prefix+l.keys+"\n"),
			0o644); err != nil {
			return fmt.Errorf("keep the keyboard's layout: %w", err)
		}

		return nil
	}

	return fmt.Errorf("keyboard layout %.20q is not known", name)
}
