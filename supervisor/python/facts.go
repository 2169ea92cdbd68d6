package python

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"saltern/internal/command"
)

//go:embed facts.py
var factsScript string

//go:embed try.py
var tryScript string

// ErrNoSalt means that none of the Pythons has Salt's library.
var ErrNoSalt = errors.New("no Python with Salt's library was found; install it, or set saltern_renderer_python")

// facts describes a Python.
type facts struct {
	as       *syscall.Credential // account under which the Python runs; nil: the account of this process
	path     string
	Missing  string            `json:"missing"`
	Python   string            `json:"python"`   // version of the Python
	Tag      string            `json:"tag"`      // tag of the Python's ABI, such as cpython-311
	Platform string            `json:"platform"` // platform tag, such as linux-x86_64
	Salt     string            `json:"salt"`
	Packages map[string]string `json:"packages"` // versions of the packages that are installed with the Python, by name
	Tops     map[string]bool   `json:"tops"`     // names importable without a layer; false: a namespace package
	Tags     []string          `json:"tags"`
	Faults   []string          `json:"faults"` // why the Python cannot use the given wheels
	Lacks    []string          `json:"lacks"`  // the faults that say what is missing
}

// askPython asks the first Python that has Salt for its facts, and whether it can use these wheels.
func (p Place) askPython(ctx context.Context, wheels []*wheel) (facts, error) {
	type about struct {
		Name     string   `json:"name"`
		Version  string   `json:"version"`
		Requires []string `json:"requires"`
		Python   string   `json:"python"`
	}

	list := make([]about, 0, len(wheels))
	for _, w := range wheels {
		list = append(list, about{w.Name, w.Version, append([]string{}, w.requires...), w.requiresPython})
	}

	in, err := json.Marshal(list)
	if err != nil {
		return facts{}, err
	}

	for _, name := range p.Pythons {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}

		run := command.Exec{Limit: time.Minute, Stdin: string(in), Env: command.PythonEnviron(), Credential: p.As}
		text, err := command.Do(ctx, run, path, "-I", "-B", "-c", factsScript)
		if err != nil {
			return facts{}, fmt.Errorf("ask %s what it is: %w", path, withoutProgram(err))
		}

		f := facts{path: path, as: p.As}
		if err := json.Unmarshal(text, &f); err != nil {
			return facts{}, fmt.Errorf("ask %s what it is: %w", path, err)
		}
		if f.Missing == "" {
			return f, nil
		}
	}

	return facts{}, ErrNoSalt
}

// withoutProgram removes from an error the command line, which contains our whole program text.
func withoutProgram(err error) error {
	for _, known := range []error{command.ErrTimeout, command.ErrOutput} {
		if errors.Is(err, known) {
			return known
		}
	}
	return err
}

// Nobody returns the account under which untrusted files are read, or nil if this process is not
// root and so has no rights to drop.
func Nobody() *syscall.Credential {
	if os.Geteuid() != 0 {
		return nil
	}
	c := &syscall.Credential{Uid: 65534, Gid: 65534}
	if u, err := user.Lookup("nobody"); err == nil {
		uid, uerr := strconv.ParseUint(u.Uid, 10, 32)
		gid, gerr := strconv.ParseUint(u.Gid, 10, 32)
		if uerr == nil && gerr == nil && uid != 0 {
			c.Uid, c.Gid = uint32(uid), uint32(gid)
		}
	}
	return c
}

// fullTag returns a text that identifies all properties of a Python that decide whether packages
// suit it.
func (f *facts) fullTag() string {
	h := sha256.New()
	fmt.Fprintln(h, f.Python, f.Platform)
	for _, name := range slices.Sorted(maps.Keys(f.Packages)) {
		fmt.Fprintln(h, name, f.Packages[name])
	}
	return f.abiTag() + "-" + hex.EncodeToString(h.Sum(nil)[:6])
}

// abiTag returns the part of fullTag on which compiled modules depend.
func (f *facts) abiTag() string {
	return strings.Map(func(r rune) rune {
		if r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' {
			return r
		}
		return '_'
	}, f.Tag+"-"+f.Platform)
}

// checkWheels returns nil if all the wheels together suit this Python, else an error that says why
// not.
func (f *facts) checkWheels(wheels []*wheel) error {
	tags := map[string]bool{}
	for _, t := range f.Tags {
		tags[t] = true
	}

	tops := maps.Clone(f.Tops)
	owner := map[string]string{}
	for _, w := range wheels {
		if have, ok := f.Packages[w.Name]; ok {
			return fmt.Errorf("%s %s comes with Salt here (%s), and no package takes its place", w.Name,
				w.Version, have)
		}
		if !w.fitsTags(tags) {
			return fmt.Errorf("%s is not for this Python, %s (%s)", w.File, f.Python, f.Platform)
		}

		for _, top := range slices.Sorted(maps.Keys(w.tops)) {
			regular, known := tops[top]
			if known && (regular || w.tops[top]) {
				of := "Salt's Python"
				if owner[top] != "" {
					of = owner[top]
				}
				return fmt.Errorf("%s brings a module %q, and so does %s", w.File, top, of)
			}

			tops[top], owner[top] = w.tops[top], w.Name
		}
	}

	if len(f.Faults) > 0 {
		return errors.New(strings.Join(f.Faults, "; "))
	}

	return nil
}

// tryLoad checks that this Python can load the modules that the packages in a layer provide to
// Salt.
func (f *facts) tryLoad(ctx context.Context, layer string) error {
	if _, err := os.Stat(layer); errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	run := command.Exec{Limit: 2 * time.Minute, Env: append(command.PythonEnviron(), "HOME=/nonexistent")}
	text, err := command.Do(ctx, run, sandboxed(f.as, false, f.path, "-I", "-B", "-c", tryScript, layer)...)
	if err != nil {
		return fmt.Errorf("load the packages beside Salt: %w", withoutProgram(err))
	}

	var faults []string
	if err := json.Unmarshal(text, &faults); err != nil {
		return fmt.Errorf("load the packages beside Salt: read the answer: %w", err)
	}
	if len(faults) > 0 {
		return fmt.Errorf("does not load beside Salt %s: %s", f.Salt, strings.Join(faults, "; "))
	}

	return nil
}
