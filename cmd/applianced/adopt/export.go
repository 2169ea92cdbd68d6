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

// Exported is the result of an export.
type Exported struct {
	Files       int    `json:"files"`
	Bytes       int64  `json:"bytes"`
	Fingerprint string `json:"fingerprint"` // fingerprint of the key that minions know
	Notes       []Note `json:"notes,omitempty"`
}

// exporter writes a tree for a master in Python.
type exporter struct {
	settings *settings.Settings
	node     *Tree
	out      *os.Root
	summary  Exported
}

// Export writes the data of the node's master below dir, in the layout that a master in Python uses
// below /: etc/salt, where the key that minions know is the master's own key, and srv. dir must not
// exist: Export creates it with a mode that protects the keys. After an error dir is incomplete.
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

	x := &exporter{settings: s, node: node, out: out}
	for _, step := range []func(context.Context) error{x.writeKey, x.minions, x.options, x.writeFiles, x.saved} {
		if err := step(ctx); err != nil {
			return x.summary, fmt.Errorf("export: %w; %s is incomplete, remove it", err, dir)
		}
	}

	return x.summary, nil
}

func (x *exporter) writeFile(name string, r io.Reader, mode fs.FileMode) error {
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

	x.summary.Files++
	x.summary.Bytes += n
	return errors.Join(err, f.Close())
}

func (x *exporter) writeText(name string, text []byte, mode fs.FileMode) error {
	return x.writeFile(name, strings.NewReader(string(text)), mode)
}

const exportPKI = "etc/salt/pki/master"

// writeKey writes the key pair that minions know, and the pair that signs it.
func (x *exporter) writeKey(context.Context) error {
	p := &Plan{request: Request{Settings: x.settings}, node: x.node}
	name := "cluster"
	if !x.settings.Peering.Enabled {
		name = p.ownNames()[0]
	}

	k, err := p.ownKey(name)
	if err != nil {
		return err
	}

	x.summary.Fingerprint = fingerprint(k.public)
	if err := x.writeText(exportPKI+"/master.pem", k.text, 0o400); err != nil {
		return err
	}

	if err := x.writeText(exportPKI+"/master.pub", k.public, 0o644); err != nil {
		return err
	}

	own, err := Open(x.settings.PKIDir())
	if err != nil {
		return err
	}
	defer own.Close()

	for name, mode := range map[string]fs.FileMode{"master_sign.pem": 0o400, "master_sign.pub": 0o644} {
		text, err := own.readFile(name, maxPrivate)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}

		if err == nil {
			err = x.writeText(exportPKI+"/"+name, text, mode)
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

	x.summary.Notes = append(x.summary.Notes, r.notes...)
	for _, s := range append(states(), keys.Denied) {
		if err := x.out.MkdirAll(path.Join(exportPKI, s.Dir()), 0o700); err != nil {
			return err
		}
	}

	for _, list := range []map[string]*minionKey{r.known, r.denied} {
		for id, k := range list {
			if err := x.writeText(path.Join(exportPKI, k.state.Dir(), id), k.text, 0o644); err != nil {
				return err
			}
		}
	}

	return nil
}

// options writes the options of appliance.yaml and the administrator's files. It omits options that
// only our master has, and changes paths to those of the other master.
func (x *exporter) options(context.Context) error {
	text, err := yaml.Marshal(x.settings.Master.Options)
	if err != nil {
		return err
	}

	if len(x.settings.Master.Options) == 0 {
		text = nil
	}

	if err := x.optionFile("appliance.yaml", "etc/salt/master", text); err != nil {
		return err
	}

	names, err := x.node.listNames("etc/master.d")
	if err != nil {
		return err
	}

	for _, n := range names {
		if n[0] == '.' || !strings.HasSuffix(n, ".conf") {
			continue
		}

		text, err := x.node.readFile("etc/master.d/"+n, maxOptions)
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

	f := &confFile{path: from, text: text, options: &value.Map{}, lines: saltyaml.Lines(text)}
	if m, ok := v.(*value.Map); ok {
		f.options = m
	}

	out := &optionFile{name: to, from: f, drop: map[string]string{}, change: map[string]any{}}
	for _, name := range f.options.Keys() {
		if strings.HasPrefix(name, "saltern_") {
			out.drop[name] = "Salt's master does not know it"
			continue
		}

		moved := &paths{sorter: &sorter{tree: x.node, roots: x.places()}}
		v, _ := f.options.Get(name)
		changed := moved.change(v, 0)
		if len(moved.found) > 0 {
			out.change[name] = changed
		}
	}

	if err := out.writeText(); err != nil {
		return err
	}

	head := "# Exported from " + from + " by applianced export.\n"
	_, rest, _ := strings.Cut(string(out.text), "\n")
	return x.writeText(to, []byte(head+rest), 0o600)
}

// places returns the folders from which this master reads, each with the folder from which the other
// master will read.
func (x *exporter) places() (out []*root) {
	for from, to := range map[string]string{
		x.settings.FileRoot():                         "/srv/salt",
		x.settings.PillarRoot():                       "/srv/pillar",
		x.settings.UserConfDir():                      "/etc/salt/master.d",
		x.settings.GPGDir():                           "/etc/salt/gpgkeys",
		filepath.Join(x.settings.StorageDir(), "srv"): "/srv",
		x.settings.EditConfDir():                      "/etc/salt/master.d",
		x.settings.SharedGPGDir():                     "/etc/salt/gpgkeys",
	} {
		out = append(out, &root{dir: from, served: to})
	}
	slices.SortFunc(out, func(a, b *root) int { return len(b.dir) - len(a.dir) }) // the longest path first
	return out
}

// writeFiles writes states, pillars, the lists beside the options, and the keyring.
func (x *exporter) writeFiles(ctx context.Context) error {
	scan := &scanner{ctx: ctx, tree: x.node, seen: map[string]string{}, leftOut: map[Kind]int{}}
	for _, r := range []*root{
		{dir: "srv/salt", to: "srv/salt"},
		{dir: "srv/pillar", to: "srv/pillar"},
		{dir: "etc/master.d", to: "etc/salt/master.d"},
		{dir: secrets.Dir, to: "etc/salt/gpgkeys"},
	} {
		if !x.node.exists(r.dir) {
			continue
		}
		if err := scan.scanRoot(r); err != nil {
			return err
		}
	}

	x.summary.Notes = append(x.summary.Notes, scan.notes...)
	for _, it := range scan.items {
		if rel, ok := strings.CutPrefix(it.to, "etc/salt/gpgkeys/"); ok && !secrets.Part(rel) ||
			path.Dir(it.to) == "etc/salt/master.d" && strings.HasSuffix(it.to, ".conf") {
			continue
		}

		f, _, err := x.node.openFile(it.from)
		if err != nil {
			return err
		}

		mode := it.mode
		if strings.HasPrefix(it.to, "etc/salt/gpgkeys/") || strings.HasPrefix(it.to, "srv/pillar/") {
			mode &= 0o700
		}

		if err := errors.Join(x.writeFile(it.to, f, mode), f.Close()); err != nil {
			return err
		}
	}

	return nil
}
