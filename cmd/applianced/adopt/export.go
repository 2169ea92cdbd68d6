package adopt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"saltern/master/keys"
	"saltern/master/saltyaml"
	"saltern/master/value"
	"saltern/supervisor/secrets"
	"saltern/supervisor/settings"
)

// Exported is what was written.
type Exported struct {
	Files       int    `json:"files"`
	Bytes       int64  `json:"bytes"`
	Fingerprint string `json:"fingerprint"` // of the key that minions know
	Notes       []Note `json:"notes,omitempty"`
}

// exporter writes a tree for a master in Python.
type exporter struct {
	s    *settings.Settings
	node *Tree
	out  *os.Root
	sum  Exported
}

// Export writes what the node's master has, below dir, as a master in Python reads it
// from /: etc/salt with the key that minions know as its own, and srv. dir is made, and
// must not exist: it holds keys. After an error it is incomplete.
func Export(ctx context.Context, s *settings.Settings, dir string) (Exported, error) {
	if err := storageThere(s); err != nil {
		return Exported{}, err
	}

	node, err := Open(s.StorageDir())
	if err != nil {
		return Exported{}, err
	}
	defer node.Close()

	if err := os.Mkdir(dir, 0o700); err != nil {
		return Exported{}, fmt.Errorf("export: %w", err)
	}

	out, err := os.OpenRoot(dir)
	if err != nil {
		return Exported{}, fmt.Errorf("export: %w", err)
	}
	defer out.Close()

	x := &exporter{s: s, node: node, out: out}
	for _, step := range []func(context.Context) error{x.key, x.minions, x.options, x.files} {
		if err := step(ctx); err != nil {
			return x.sum, fmt.Errorf("export: %w; %s is incomplete, remove it", err, dir)
		}
	}

	return x.sum, nil
}

func (x *exporter) write(name string, r io.Reader, mode fs.FileMode) error {
	if err := x.out.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}

	f, err := x.out.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}

	n, err := io.Copy(f, io.LimitReader(r, maxFile))
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}

	x.sum.Files++
	x.sum.Bytes += n
	return errors.Join(err, f.Close())
}

func (x *exporter) text(name string, text []byte, mode fs.FileMode) error {
	return x.write(name, strings.NewReader(string(text)), mode)
}

const exportPKI = "etc/salt/pki/master"

// key writes the pair that minions know, and the one that signs it.
func (x *exporter) key(context.Context) error {
	p := &Plan{q: Request{Settings: x.s}, node: x.node}
	name := "cluster"
	if !x.s.Peering.Enabled {
		name = p.ownNames()[0]
	}

	k, err := p.own(name)
	if err != nil {
		return err
	}

	x.sum.Fingerprint = fingerprint(k.public)
	if err := x.text(exportPKI+"/master.pem", k.text, 0o400); err != nil {
		return err
	}

	if err := x.text(exportPKI+"/master.pub", k.public, 0o644); err != nil {
		return err
	}

	own, err := Open(x.s.PKIDir())
	if err != nil {
		return err
	}
	defer own.Close()

	for name, mode := range map[string]fs.FileMode{"master_sign.pem": 0o400, "master_sign.pub": 0o644} {
		text, err := own.read(name, maxPrivate)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}

		if err == nil {
			err = x.text(exportPKI+"/"+name, text, mode)
		}

		if err != nil {
			return err
		}
	}

	return nil
}

func (x *exporter) minions(ctx context.Context) error {
	r, err := readKeys(ctx, x.node, "pki")
	if err != nil {
		return err
	}

	x.sum.Notes = append(x.sum.Notes, r.notes...)
	for _, s := range append(states(), keys.Denied) {
		if err := x.out.MkdirAll(path.Join(exportPKI, s.Dir()), 0o700); err != nil {
			return err
		}
	}

	for _, list := range []map[string]*minionKey{r.known, r.denied} {
		for id, k := range list {
			if err := x.text(path.Join(exportPKI, k.state.Dir(), id), k.text, 0o644); err != nil {
				return err
			}
		}
	}

	return nil
}

// options writes those of appliance.yaml and the administrator's files, without those
// that only this master knows, and with the paths of the other place.
func (x *exporter) options(context.Context) error {
	text, err := yaml.Marshal(x.s.Master.Options)
	if err != nil {
		return err
	}

	if len(x.s.Master.Options) == 0 {
		text = nil
	}

	if err := x.optionFile("appliance.yaml", "etc/salt/master", text); err != nil {
		return err
	}

	names, err := x.node.list("etc/master.d")
	if err != nil {
		return err
	}

	for _, n := range names {
		if n[0] == '.' || !strings.HasSuffix(n, ".conf") {
			continue
		}

		text, err := x.node.read("etc/master.d/"+n, maxOptions)
		if err == nil {
			err = x.optionFile("etc/master.d/"+n, "etc/salt/master.d/"+n, text)
		}

		if err != nil {
			return err
		}
	}

	return nil
}

func (x *exporter) optionFile(from, to string, text []byte) error {
	v, err := saltyaml.Decode(text, from)
	if err != nil {
		return err
	}

	f := &confFile{path: from, text: text, opts: &value.Map{}, lines: saltyaml.Lines(text)}
	if m, ok := v.(*value.Map); ok {
		f.opts = m
	}

	out := &optionFile{name: to, from: f, drop: map[string]string{}, change: map[string]any{}}
	for _, name := range f.opts.Keys() {
		if strings.HasPrefix(name, "saltern_") {
			out.drop[name] = "Salt's master does not know it"
			continue
		}

		moved := &paths{o: &sorter{t: x.node, roots: x.places()}}
		v, _ := f.opts.Get(name)
		if w := moved.change(v, 0); len(moved.found) > 0 {
			out.change[name] = w
		}
	}

	if err := out.write(); err != nil {
		return err
	}

	head := "# Exported from " + from + " by applianced export.\n"
	_, rest, _ := strings.Cut(string(out.text), "\n")
	return x.text(to, []byte(head+rest), 0o600)
}

// places are where this master reads files, and where the other one will.
func (x *exporter) places() (out []*root) {
	for from, to := range map[string]string{
		x.s.FileRoot(): "/srv/salt", x.s.PillarRoot(): "/srv/pillar", x.s.UserConfDir(): "/etc/salt/master.d", x.s.GPGDir(): "/etc/salt/gpgkeys",
		filepath.Join(x.s.StorageDir(), "srv"): "/srv", x.s.EditConfDir(): "/etc/salt/master.d", x.s.SharedGPGDir(): "/etc/salt/gpgkeys",
	} {
		out = append(out, &root{dir: from, served: to})
	}
	slices.SortFunc(out, func(a, b *root) int { return len(b.dir) - len(a.dir) }) // the closest first
	return out
}

// files writes states, pillars, lists beside the options, and the keyring.
func (x *exporter) files(ctx context.Context) error {
	scan := &scanner{ctx: ctx, t: x.node, seen: map[string]string{}, left: map[Kind]int{}}
	for _, r := range []*root{
		{dir: "srv/salt", to: "srv/salt"},
		{dir: "srv/pillar", to: "srv/pillar"},
		{dir: "etc/master.d", to: "etc/salt/master.d"},
		{dir: secrets.Dir, to: "etc/salt/gpgkeys"},
	} {
		if !x.node.there(r.dir) {
			continue
		}
		if err := scan.root(r); err != nil {
			return err
		}
	}

	x.sum.Notes = append(x.sum.Notes, scan.notes...)
	for _, it := range scan.items {
		if rel, ok := strings.CutPrefix(it.to, "etc/salt/gpgkeys/"); ok && !secrets.Part(rel) ||
			path.Dir(it.to) == "etc/salt/master.d" && strings.HasSuffix(it.to, ".conf") {
			continue
		}

		f, _, err := x.node.open(it.from)
		if err != nil {
			return err
		}

		mode := it.mode
		if strings.HasPrefix(it.to, "etc/salt/gpgkeys/") || strings.HasPrefix(it.to, "srv/pillar/") {
			mode &= 0o700
		}

		if err := errors.Join(x.write(it.to, f, mode), f.Close()); err != nil {
			return err
		}
	}

	return nil
}
