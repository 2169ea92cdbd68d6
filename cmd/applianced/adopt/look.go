package adopt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"saltern/master/crypt"
	"saltern/master/keys"
	"saltern/master/saltyaml"
	"saltern/master/value"
	"saltern/supervisor/nodeapi"
	"saltern/supervisor/setup"
)

// planKeys plans the keys of the master and of its minions.
func (p *Plan) planKeys(ctx context.Context, c *confs) error {
	there, err := readKeys(ctx, p.tree, minionsOf(c))
	if err != nil {
		return err
	}

	here := &keyring{}
	if p.node != nil {
		if here, err = readKeys(ctx, p.node, "pki"); err != nil {
			return err
		}
	}

	p.addNotes(there.notes...)
	for k, n := range there.leftOut {
		p.countOf(k).Left += n
	}

	if err := p.master(c, here, there); err != nil {
		return err
	}

	for _, id := range slices.Sorted(maps.Keys(there.known)) {
		p.minion(id, there.known[id], here.known[id])
	}

	for _, id := range slices.Sorted(maps.Keys(there.denied)) {
		p.minion(id, there.denied[id], here.denied[id])
	}

	return nil
}

// minion plans the import of the key k of the minion id. nodeKey is the node's key of that minion.
func (p *Plan) minion(id string, k, nodeKey *minionKey) {
	it := &item{
		kind: kindOf(k.state),
		to:   path.Join("pki", k.state.Dir(), id),
		text: k.text,
		size: int64(len(k.text)),
		mode: 0o644,
	}

	c := p.countOf(it.kind)
	switch {
	case nodeKey == nil:
		c.New++
	case nodeKey.pem == k.pem && nodeKey.state == k.state:
		c.Same++
		return
	case nodeKey.pem == k.pem && nodeKey.state == keys.Pending: // the minion has already offered its key to this node
		c.New++
	case nodeKey.pem == k.pem:
		c.Other++
		p.conflict(it, "the key is %s here and %s there", nodeKey.state, k.state)
	default:
		c.Other++
		p.conflict(it, "another key is %s here", nodeKey.state)
	}

	p.compareItem(it)
}

// master plans the import of the key by which minions know their master, and of the key that signs
// that key.
func (p *Plan) master(c *confs, here, there *keyring) error {
	k, cluster, err := identity(p.tree, c)
	switch {
	case p.request.WithoutKey:
		if err == nil {
			p.countOf(MasterKey).Left++
			p.addNotes(Note{
				File: k.from,
				Text: "left out (--without-key): minions refuse this node until their " +
					"pki/minion/minion_master.pub is removed",
			})
		}

		return nil
	case errors.Is(err, fs.ErrNotExist):
		p.Refusals = append(p.Refusals,
			fmt.Sprintf("there is no key of the master in the tree (%s): minions would refuse this node. "+
				"Bring pki too, or leave the node its own key: --without-key",
				minionsOf(c)))
		return nil
	case err != nil:
		return fmt.Errorf("%w; if it has a passphrase, the option key_pass has to be in the tree", err)
	}

	p.Fingerprint = fingerprint(k.public)
	named, err := nodeapi.ParseClusterKey(k.text)
	if err != nil {
		return err
	}

	p.KeyHash = named.Hash
	if k.opened {
		p.addNotes(Note{
			File: k.from,
			Text: "it had a passphrase; on the appliance it is in clear, for the master and root alone",
			Info: true,
		})
	}

	names := []string{"cluster"}
	if !p.request.Settings.Peering.Enabled {
		names = p.ownNames()
	}

	count := p.countOf(MasterKey)
	old, err := p.ownKey(names[0])
	switch {
	case err == nil && old.key.Equal(k.key):
		count.Same++
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("read this node's own key: %w", err)
	default:
		p.Rekeyed = true
		if err == nil {
			count.Other++
		} else {
			count.New++
		}
		p.foreign(here, there, err == nil)
	}

	if p.Rekeyed && p.request.Beside {
		names = []string{setup.NextKey}
	}

	for _, n := range names {
		p.placeHalf(n+".pem", k.text, 0o400, p.Rekeyed)
		p.placeHalf(n+".pub", k.public, 0o644, p.Rekeyed)
	}

	if cluster && !p.request.Settings.Peering.Enabled {
		p.addNotes(Note{File: k.from, Text: "the key of a cluster becomes that of this one node", Info: true})
	}

	return p.signing(c)
}

// ownNames returns the names of the key files of a single master: the node's name, and "master",
// which tools use. It omits "master" if the master has made that file a link to the other.
func (p *Plan) ownNames() []string {
	name := strings.TrimSuffix(p.request.Settings.Node, "_master")
	if p.node != nil {
		if fi, err := p.node.root.Lstat("pki/master.pem"); err == nil && fi.Mode()&fs.ModeSymlink != 0 {
			return []string{name}
		}
	}
	return []string{name, "master"}
}

// ownKey returns the key that this node's master uses.
func (p *Plan) ownKey(name string) (*pair, error) {
	if p.node == nil {
		return nil, fs.ErrNotExist
	}
	k, err := readPair(p.node, "pki", name, "")
	if errors.Is(err, fs.ErrNotExist) && name != "cluster" {
		return readPair(p.node, "pki", "master", "")
	}
	return k, err
}

// placeHalf plans one file of the master's key pair if the node's file differs.
func (p *Plan) placeHalf(name string, text []byte, mode fs.FileMode, rekeyed bool) {
	it := &item{
		kind: MasterKey,
		to:   path.Join("pki", name),
		text: text,
		size: int64(len(text)),
		mode: mode,
	}
	if same, there, err := p.compare(it); err == nil && same || there && !rekeyed && path.Ext(name) == ".pem" {
		return
	}
	p.compareItem(it)
}

// foreign records a conflict if the import would replace the node's master key although minions of
// this node know the present key.
func (p *Plan) foreign(here, there *keyring, has bool) {
	if known := strangers(here, there); has && len(known) > 0 {
		p.Conflicts = append(p.Conflicts,
			Note{
				File: "pki",
				Text: fmt.Sprintf("the key of the master would become another, and %d minions here know this "+
					"one, %q the first",
					len(known), known[0]),
			})
	}
}

// signing plans the pair that signs the master's key (master_sign_pubkey).
func (p *Plan) signing(c *confs) error {
	if v, _ := c.all.Get("master_sign_pubkey"); !value.Truth(v) {
		return nil
	}

	pki := c.pathOption("pki_dir", defaultPKI)
	name := path.Base(c.textOption("master_sign_key_name", "master_sign"))
	text, err := p.tree.readFile(path.Join(pki, name+".pem"), maxPrivate)
	if err == nil {
		_, err = crypt.ParsePrivate(text, c.textOption("signing_key_pass", ""))
	}

	if err != nil {
		p.countOf(SigningKey).Left++
		p.addNotes(c.noteAt("master_sign_pubkey", "the signing key is left out, the master makes a new one: %v", err))
		return nil
	}

	if p.request.Settings.Peering.Enabled {
		p.countOf(SigningKey).Left++
		p.addNotes(c.noteAt("master_sign_pubkey",
			"the signing key is left out: in a cluster each node has its own, in %s. Copy %s and .pub there "+
				"on every node, for the master's account, before minions come",
			p.request.Settings.PKIDir(), path.Join(pki, name+".pem")))
		return nil
	}

	files := []string{name + ".pem", name + ".pub"}
	if v, _ := c.all.Get("master_use_pubkey_signature"); value.Truth(v) {
		files = append(files, path.Base(c.textOption("master_pubkey_signature", "master_pubkey_signature")))
	}

	for i, f := range files {
		text, err := p.tree.readFile(path.Join(pki, f), maxPrivate)
		if err != nil {
			p.countOf(SigningKey).Left++
			p.addNotes(Note{File: path.Join(pki, f), Text: fmt.Sprintf("left out: %v", err)})
			continue
		}

		mode := fs.FileMode(0o644)
		if i == 0 {
			mode = 0o400
		}

		if err := p.addItem(&item{kind: SigningKey, to: path.Join("pki", f), text: text, mode: mode}); err != nil {
			return err
		}
	}

	return nil
}

// options plans the options, the files of the roots, and the lists.
func (p *Plan) options(ctx context.Context, c *confs) error {
	s := p.request.Settings
	roots, extra, notes := findRoots(p.tree, c, s)
	p.addNotes(notes...)
	if err := p.planLists(c, extra); err != nil {
		return err
	}

	o := &sorter{settings: s, confs: c, tree: p.tree, roots: roots}
	if err := o.sortOptions(); err != nil {
		return err
	}

	if extra.Len() > 0 {
		text, err := saltyaml.EncodeStyle(extra, saltyaml.Style{KeepKeys: true})
		if err != nil {
			return fmt.Errorf("write the options: %w", err)
		}

		o.files = append(o.files,
			&optionFile{
				name: "import-3-appliance.conf",
				text: append([]byte("# Written by applianced import: where what was imported is on the appliance.\n"),
					text...),
			})
	}

	if err := o.tryOptions(); err != nil {
		return err
	}

	p.addNotes(o.notes...)
	for _, f := range o.files {
		if len(f.text) == 0 {
			continue
		}

		if err := p.addItem(&item{
			kind:  Options,
			to:    "etc/master.d/" + f.name,
			text:  f.text,
			mode:  0o640,
			group: true,
		}); err != nil {
			return err
		}
	}

	if o.leftOut > 0 {
		p.countOf(Options).Left += o.leftOut
	}

	return p.planFiles(ctx, roots)
}

// planFiles plans the files of the roots.
func (p *Plan) planFiles(ctx context.Context, roots []*root) error {
	x := &scanner{ctx: ctx, tree: p.tree, seen: map[string]string{}, leftOut: map[Kind]int{}}
	for _, r := range roots {
		if err := x.scanRoot(r); err != nil {
			return fmt.Errorf("read %s: %w", r.dir, err)
		}
	}

	p.addNotes(x.notes...)
	for k, n := range x.leftOut {
		p.countOf(k).Left += n
	}

	for _, it := range x.items {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := p.addItem(it); err != nil {
			return err
		}
	}

	return nil
}

// planLists plans the lists that accept or reject minions, and sets the options that name them.
func (p *Plan) planLists(c *confs, extra *value.Map) error {
	for option, to := range map[string]string{
		"autosign_file":   "import-autosign.list",
		"autoreject_file": "import-autoreject.list",
	} {
		from := c.pathOption(option, "")
		if from == "" {
			continue
		}

		text, err := p.tree.readFile(from, maxAutosign)
		if err != nil {
			p.countOf(Lists).Left++
			p.addNotes(c.noteAt(option, "left out: %v", err))
			continue
		}

		extra.Set(option, filepath.Join(p.request.Settings.UserConfDir(), to))
		if err := p.addItem(&item{kind: Lists, to: "etc/master.d/" + to, text: text, mode: 0o644}); err != nil {
			return err
		}
	}

	dir := c.pathOption("autosign_grains_dir", "")
	if dir == "" {
		return nil
	}

	names, err := p.tree.listNames(dir)
	if err != nil {
		return fmt.Errorf("read %s: %w", dir, err)
	}

	extra.Set("autosign_grains_dir", filepath.Join(p.request.Settings.UserConfDir(), grainsDir))
	for _, n := range names[:min(len(names), maxListed)] {
		text, err := p.tree.readFile(path.Join(dir, n), maxAutosign)
		if err != nil {
			p.countOf(Lists).Left++
			p.addNotes(Note{File: path.Join(dir, n), Text: fmt.Sprintf("left out: %v", err)})
			continue
		}

		if err := p.addItem(&item{
			kind: Lists,
			to:   path.Join("etc/master.d", grainsDir, n),
			text: text,
			mode: 0o644,
		}); err != nil {
			return err
		}
	}

	return nil
}

const grainsDir = "import-autosign-grains"
