package adopt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"saltern/supervisor/settings"
)

// Request describes an import: its source, the node, and what it may replace.
type Request struct {
	Settings *settings.Settings
	// ConfigDir is the folder of the master's configuration in the tree. "" means /etc/salt.
	ConfigDir string
	// Force allows replacing files of the node that have other content.
	Force bool
	// WithoutKey keeps the node's own master key, although the imported minions do not know it.
	WithoutKey bool
	// Beside stores the imported cluster key beside the present key, which stays in use. A cluster
	// with other nodes needs this: all nodes must change to the new key together.
	Beside bool
}

// item is a file to import, with its source and its destination.
type item struct {
	kind Kind
	to   string // destination: path below the storage, with slashes
	from string // source: path in the tree; "" means that text is the content
	text []byte
	size int64
	mode fs.FileMode
	// group allows the master's group to read the file.
	group bool
}

// Plan describes an import before it changes anything.
type Plan struct {
	request Request
	tree    *Tree
	node    *Tree // the storage of this node; nil if it does not exist yet
	items   []*item
	counts  map[Kind]*Count
	bytes   int64
	// keyring is the folder with gpg's keys in the tree, or "".
	keyring string

	// Rekeyed means that the imported master key is not the present key of this node.
	Rekeyed bool
	// Fingerprint is the fingerprint of the imported key. KeyHash is the hash by which nodes
	// identify that key.
	Fingerprint, KeyHash string
	// Conflicts lists files that the node has with other content. An import with conflicts needs
	// Force.
	Conflicts []Note
	// Refusals are reasons that prevent the import even with Force.
	Refusals []string
	Notes    []Note
}

// Refused reports whether the import is refused.
func (p *Plan) Refused() bool { return len(p.Refusals) > 0 || len(p.Conflicts) > 0 && !p.request.Force }

// Counts returns the counts of all kinds that occur.
func (p *Plan) Counts() (out []Count) {
	for _, k := range allKinds() {
		if c := p.counts[k]; c != nil {
			out = append(out, *c)
		}
	}
	return out
}

// Bytes returns how many bytes the import writes.
func (p *Plan) Bytes() int64 { return p.bytes }

// Look reads the tree, compares it with the node, and returns the plan of the import. It writes
// nothing.
func Look(ctx context.Context, t *Tree, q Request) (*Plan, error) {
	p := &Plan{request: q, tree: t, counts: map[Kind]*Count{}}
	dir := q.ConfigDir
	if dir == "" {
		dir = "/etc/salt"
	}

	c, err := readConfs(t, dir)
	if err != nil {
		return nil, err
	}

	node, err := Open(q.Settings.StorageDir())
	switch {
	case err == nil:
		p.node = node
		defer func() { node.Close(); p.node = nil }()
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}

	for _, step := range []func(context.Context, *confs) error{p.planKeys, p.options, p.planKeyring, p.planSaved} {
		if err := step(ctx, c); err != nil {
			return nil, err
		}
	}

	return p, nil
}

func (p *Plan) countOf(k Kind) *Count {
	if p.counts[k] == nil {
		p.counts[k] = &Count{Kind: k}
	}
	return p.counts[k]
}

func (p *Plan) addNotes(list ...Note) { p.Notes = append(p.Notes, list...) }

// addItem compares an item with the node's file in its place, and adds it to the plan.
func (p *Plan) addItem(it *item) error {
	if it.from == "" {
		it.size = int64(len(it.text))
	}

	c := p.countOf(it.kind)
	same, there, err := p.compare(it)
	switch {
	case err != nil:
		return fmt.Errorf("compare with what is here: %w", err)
	case same:
		c.Same++
		return nil
	case there:
		c.Other++
		p.conflict(it, "has another content here")
	default:
		c.New++
	}

	p.compareItem(it)
	return nil
}

func (p *Plan) conflict(it *item, format string, args ...any) {
	p.Conflicts = append(p.Conflicts, Note{File: it.to, Text: fmt.Sprintf(format, args...)})
}

func (p *Plan) compareItem(it *item) {
	p.bytes += it.size
	p.items = append(p.items, it)
}

// compare reports in there whether the node has a file at the item's destination, and in same
// whether that file has the item's content.
func (p *Plan) compare(it *item) (same, there bool, err error) {
	if p.node == nil {
		return false, false, nil
	}

	f, fi, err := p.node.openFile(it.to)
	if errors.Is(err, fs.ErrNotExist) {
		return false, p.node.exists(it.to), nil
	}
	if err != nil {
		return false, true, err
	}
	defer f.Close()

	if fi.Size() != it.size {
		return false, true, nil
	}

	content, err := p.content(it)
	if err != nil {
		return false, true, err
	}
	defer content.Close()

	same, err = sameContent(f, content)
	return same, true, err
}

// content opens the content of an item for reading.
func (p *Plan) content(it *item) (io.ReadCloser, error) {
	if it.from == "" {
		return io.NopCloser(bytes.NewReader(it.text)), nil
	}
	f, _, err := p.tree.openFile(it.from)
	return f, err
}

func sameContent(a, b io.Reader) (bool, error) {
	x, y := make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		n, err := io.ReadFull(a, x)
		m, err2 := io.ReadFull(b, y)
		if !bytes.Equal(x[:n], y[:m]) {
			return false, nil
		}

		end, end2 := contextEnded(err), contextEnded(err2)
		switch {
		case end && end2:
			return true, nil
		case end || end2:
			return false, nil
		case err != nil || err2 != nil:
			return false, errors.Join(err, err2)
		}
	}
}

func contextEnded(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// planKeyring finds the folder with gpg's keys.
func (p *Plan) planKeyring(_ context.Context, c *confs) error {
	dir := c.pathOption("gpg_keydir", "/etc/salt/gpgkeys")
	names, err := p.tree.listNames(path.Join(dir, "private-keys-v1.d"))
	if err != nil {
		return fmt.Errorf("look for keys of gpg: %w", err)
	}

	n := 0
	for _, name := range names {
		switch {
		case !strings.HasSuffix(name, ".key"):
			continue
		case p.node != nil && p.node.exists(path.Join("etc/gpgkeys/private-keys-v1.d", name)):
			p.countOf(GPG).Same++
		default:
			p.countOf(GPG).New++
			p.keyring = dir
		}

		n++
	}

	if p.tree.exists(path.Join(dir, "secring.gpg")) && n == 0 {
		p.countOf(GPG).Left++
		p.addNotes(Note{
			File: path.Join(dir, "secring.gpg"),
			Text: "left out: it is of GnuPG 1; export the keys there (gpg --export-secret-keys) and give " +
				"them to applianced secrets import",
		})
	}

	return nil
}

// Listed returns the notes to show, first those that report a loss, and the number of further
// notes.
func Listed(notes []Note) ([]Note, int) {
	sorted := slices.Clone(notes)
	slices.SortStableFunc(sorted, func(a, b Note) int {
		switch {
		case a.Info == b.Info:
			return 0
		case a.Info:
			return 1
		}
		return -1
	})
	return sorted[:min(len(sorted), maxListed)], max(0, len(sorted)-maxListed)
}

// storageThere returns an error if nothing can be written to the storage.
func storageThere(s *settings.Settings) error {
	if !s.OnVolume() && !s.Peering.Enabled {
		return nil
	}
	if _, err := os.Stat(s.SharedPKIDir()); err != nil {
		return fmt.Errorf("the shared storage is not there (%s); next: applianced status", s.StorageDir())
	}
	return nil
}
