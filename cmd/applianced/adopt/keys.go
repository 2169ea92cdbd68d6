package adopt

import (
	"bytes"
	"context"
	"crypto/rsa"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"

	"saltern/master/crypt"
	"saltern/master/keys"
)

// minionKey is the key of one minion.
type minionKey struct {
	state keys.State
	pem   string // normalised text of the key
	text  []byte
	from  string
}

// states returns the states of a minion's key, in the order in which Salt looks for the key.
func states() []keys.State { return []keys.State{keys.Rejected, keys.Pending, keys.Accepted} }

func kindOf(s keys.State) Kind {
	return map[keys.State]Kind{
		keys.Accepted: Accepted,
		keys.Pending:  Pending,
		keys.Rejected: Rejected,
		keys.Denied:   Denied,
	}[s]
}

// keyring holds the keys of minions below one pki_dir.
type keyring struct {
	known   map[string]*minionKey // accepted, pending and rejected keys
	denied  map[string]*minionKey
	notes   []Note
	leftOut map[Kind]int
}

// readKeys returns the keys of minions in all states. It omits keys that no minion can use, and
// adds a note about them.
func readKeys(ctx context.Context, t *Tree, pki string) (*keyring, error) {
	r := &keyring{known: map[string]*minionKey{}, denied: map[string]*minionKey{}, leftOut: map[Kind]int{}}
	n := 0
	for _, state := range append(states(), keys.Denied) {
		dir := path.Join(pki, state.Dir())
		names, err := t.listNames(dir)
		if err != nil {
			return nil, fmt.Errorf("read the keys of minions: %w", err)
		}

		for _, id := range names {
			if err := ctx.Err(); err != nil {
				return nil, err
			}

			n++
			if n > maxKeys {
				return nil, fmt.Errorf("read the keys of minions: more than %d", maxKeys)
			}

			r.takeKey(t, state, dir, id)
		}
	}

	return r, nil
}

func (r *keyring) skipFile(state keys.State, file, why string) {
	r.leftOut[kindOf(state)]++
	r.notes = append(r.notes, Note{File: file, Text: "left out: " + why})
}

func (r *keyring) takeKey(t *Tree, state keys.State, dir, id string) {
	if id[0] == '.' { // a file of Salt itself
		return
	}

	if err := keys.ValidID(id); err != nil {
		r.skipFile(state, dir, "a file in it is no minion's: "+err.Error())
		return
	}

	file := path.Join(dir, id)
	text, err := t.readFile(file, maxKeyFile)
	if err == nil {
		_, err = crypt.ParsePublic(text)
	}

	if err != nil {
		r.skipFile(state, file, "it is no key that a minion can use: "+err.Error())
		return
	}

	k := &minionKey{state: state, pem: crypt.NormalizePEM(string(text)), text: text, from: file}
	if state == keys.Denied {
		r.denied[id] = k
		return
	}

	if first := r.known[id]; first != nil {
		r.notes = append(r.notes, Note{File: file, Text: "left out: the key in " + first.from + " counts", Info: true})
		return
	}

	r.known[id] = k
}

// pair is a key pair of a master.
type pair struct {
	key    *rsa.PrivateKey
	public []byte // text of the public half, as minions have seen it
	text   []byte // text of the private half, unencrypted
	from   string
	opened bool // the private key had a passphrase
}

// readPair returns the key pair in <dir>/<name>.pem and .pub. If there is no such pair, the error
// is [fs.ErrNotExist].
func readPair(t *Tree, dir, name, passphrase string) (*pair, error) {
	p := &pair{from: path.Join(dir, name+".pem")}
	text, err := t.readFile(p.from, maxPrivate)
	if err != nil {
		return nil, fmt.Errorf("read the key of the master: %w", err)
	}

	if p.key, err = crypt.ParsePrivate(text, passphrase); err != nil {
		return nil, fmt.Errorf("read the key of the master %s: %w", p.from, err)
	}

	p.text = text
	block, _ := pem.Decode(text)
	p.opened = block.Type == "ENCRYPTED PRIVATE KEY" || block.Headers["DEK-Info"] != ""
	if p.opened {
		if p.text, err = crypt.PrivatePEM(p.key, ""); err != nil {
			return nil, err
		}
	}

	own := crypt.Bounds{Min: 1, Max: 1 << 16}
	if pub, err := t.readFile(path.Join(dir, name+".pub"), maxKeyFile); err == nil {
		if k, err := own.ParsePublic(pub); err == nil && k.Equal(&p.key.PublicKey) {
			p.public = pub
			return p, nil
		}
	}

	public, err := crypt.PublicPEM(&p.key.PublicKey)
	p.public = []byte(public + "\n")
	return p, err
}

// identity returns the key by which minions know a master: the cluster's key, or the master's own.
// cluster reports which of the two it is.
func identity(t *Tree, c *confs) (p *pair, cluster bool, err error) {
	if c.textOption("cluster_id", "") != "" {
		p, err := readPair(t, c.pathOption("cluster_pki_dir", c.pathOption("pki_dir", defaultPKI)), "cluster",
			c.textOption("cluster_key_pass", ""))
		return p, true, err
	}
	for _, name := range []string{"master", path.Base(c.textOption("id", "master"))} {
		p, err = readPair(t, c.pathOption("pki_dir", defaultPKI), name, c.textOption("key_pass", ""))
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return p, false, err
}

const defaultPKI = "/etc/salt/pki/master"

// minionsOf returns the folder with the keys of minions.
func minionsOf(c *confs) string {
	pki := c.pathOption("pki_dir", defaultPKI)
	if c.textOption("cluster_id", "") != "" {
		return c.pathOption("cluster_pki_dir", pki)
	}
	return pki
}

// fingerprint returns the fingerprint of a public key, as minions have it in master_finger.
func fingerprint(public []byte) string {
	f, err := keys.Fingerprint(string(bytes.TrimSpace(public)), "sha256")
	if err != nil {
		return ""
	}
	return f
}

// strangers returns the accepted minions of this node, except those that the import accepts with
// the same key. The returned minions know this node's master key, and would refuse the imported
// one.
func strangers(here, there *keyring) (out []string) {
	for id, k := range here.known {
		o := there.known[id]
		if k.state == keys.Accepted && (o == nil || o.pem != k.pem || o.state != keys.Accepted) {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out
}
