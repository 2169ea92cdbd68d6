package secrets

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Key describes a key of the keyring, for people and machines.
type Key struct {
	Fingerprint string     `json:"fingerprint"`
	Users       []string   `json:"users"`
	Created     time.Time  `json:"created"`
	Expires     *time.Time `json:"expires,omitempty"` // nil: never
	// State is Ready, or says why the key is not used for encryption.
	State State `json:"state"`
	// Here reports whether this node's master has the private key.
	Here bool `json:"here"`

	grips []string // keygrips of the key's subkeys that can decrypt
}

// State says whether a key can be used for encryption.
type State string

// Values of State. An expired key still decrypts what was encrypted for it.
const (
	Ready     State = "ready"
	Expired   State = "expired"
	Revoked   State = "revoked"
	NoPrivate State = "no private key"
	NoEncrypt State = "not for encryption"
)

// List returns the keys of the shared keyring, in the keyring's order.
func (p Place) List(ctx context.Context) ([]Key, error) {
	h, err := p.openCopy(false)
	if err != nil {
		return nil, err
	}
	defer h.close()
	return p.listKeys(ctx, h)
}

func (p Place) listKeys(ctx context.Context, h *home) ([]Key, error) {
	out, err := h.runGPG(ctx, "", "--with-colons", "--fixed-list-mode", "--with-keygrip", "--list-keys")
	if err == nil {
		err = out.Err()
	}

	if err != nil {
		return nil, fmt.Errorf("list the keys: %w", err)
	}

	keys := parseKeys(string(out.Stdout))
	for i := range keys {
		k := &keys[i]
		private := false
		for _, g := range k.grips {
			private = private || hasPrivateKey(p.Shared, g) || hasPrivateKey(h.dir, g)
			k.Here = k.Here || hasPrivateKey(p.Node, g)
		}

		if k.State == Ready && !private {
			k.State = NoPrivate
		}
	}

	return keys, nil
}

// maxKeys bounds how many keys of gpg's list are read.
const maxKeys = 1000

// parseKeys parses the list that gpg --with-colons prints (doc/DETAILS of GnuPG). It skips lines of
// unknown types.
func parseKeys(text string) []Key {
	var keys []Key
	var kind, validity, able string
	for line := range strings.Lines(text) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), ":")
		if len(f) < 10 {
			continue
		}

		var k *Key
		if len(keys) > 0 {
			k = &keys[len(keys)-1]
		}

		switch f[0] {
		case "pub":
			if len(keys) == maxKeys {
				return keys
			}
			keys = append(keys, newKey(f))
			kind = "pub"
			validity = f[1]
			able = abilities(f)
		case "sub":
			kind = "sub"
			validity = f[1]
			able = abilities(f)
		case "fpr":
			if k != nil && kind == "pub" && k.Fingerprint == "" && isHex(f[9]) {
				k.Fingerprint = f[9]
			}
		case "grp":
			if k == nil || !strings.Contains(able, "e") || !isHex(f[9]) {
				continue
			}
			k.grips = append(k.grips, f[9])
			if k.State == NoEncrypt && !strings.ContainsAny(validity, "reid") {
				k.State = Ready
			}
		case "uid":
			if k != nil && len(k.Users) < 16 {
				k.Users = append(k.Users, unescape(f[9]))
			}
		}
	}

	var whole []Key
	for _, k := range keys {
		if k.Fingerprint != "" {
			whole = append(whole, k)
		}
	}

	return whole
}

func newKey(f []string) Key {
	k := Key{State: NoEncrypt, Users: []string{}}
	if n, err := strconv.ParseInt(f[5], 10, 40); err == nil {
		k.Created = time.Unix(n, 0).UTC()
	}

	if n, err := strconv.ParseInt(f[6], 10, 40); err == nil {
		at := time.Unix(n, 0).UTC()
		k.Expires = &at
	}

	switch {
	case strings.Contains(f[1], "e"):
		k.State = Expired
	case strings.ContainsAny(f[1], "rd"):
		k.State = Revoked
	}

	return k
}

// abilities returns the field of gpg's list with the abilities of one key. A capital letter is an
// ability of the key or of one of its subkeys.
func abilities(f []string) string {
	if len(f) < 12 {
		return ""
	}
	return f[11]
}

func isHex(s string) bool {
	_, err := hex.DecodeString(s)
	return err == nil && len(s) >= 32 && len(s) <= 64
}

// unescape decodes \x3a and the like.
func unescape(s string) string {
	parts := strings.Split(s, `\x`)
	for i, p := range parts[1:] {
		if len(p) >= 2 {
			if b, err := hex.DecodeString(p[:2]); err == nil {
				parts[i+1] = string(b) + p[2:]
				continue
			}
		}
		parts[i+1] = `\x` + p
	}
	return strings.Join(parts, "")
}

// ErrWhich means that there are several keys, so that the caller must name one.
var ErrWhich = errors.New("there is more than one key; name one by its fingerprint")

// choose returns the key that name selects: name is the end of the key's fingerprint or a part of
// its user ID. Without a name choose returns the only key for which fits returns true.
func choose(keys []Key, name string, fits func(Key) bool) (Key, error) {
	var found []Key
	want := strings.ToUpper(strings.TrimPrefix(strings.ReplaceAll(name, " ", ""), "0x"))
	for _, k := range keys {
		byUser := false
		for _, u := range k.Users {
			byUser = byUser || strings.Contains(strings.ToLower(u), strings.ToLower(name))
		}
		if name == "" && fits(k) || name != "" && (byUser || len(want) >= 8 && strings.HasSuffix(k.Fingerprint, want)) {
			found = append(found, k)
		}
	}

	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return Key{}, ErrWhich
	case len(keys) == 0:
		return Key{}, errors.New("the cluster has no key for secrets yet; see: applianced secrets import --help")
	case name == "":
		return Key{}, errors.New("no key is ready; see: applianced secrets list")
	}

	return Key{}, fmt.Errorf("no key is called %.60q; see: applianced secrets list", name)
}

// Public returns a public key in armoured form. name may be empty if there is only one key.
func (p Place) Public(ctx context.Context, name string) (Key, string, error) {
	h, err := p.openCopy(false)
	if err != nil {
		return Key{}, "", err
	}
	defer h.close()

	keys, err := p.listKeys(ctx, h)
	if err != nil {
		return Key{}, "", err
	}

	k, err := choose(keys, name, func(k Key) bool { return k.State != NoPrivate })
	if err != nil {
		return Key{}, "", err
	}

	out, err := h.runGPG(ctx, "", "--armor", "--export", k.Fingerprint)
	if err == nil {
		err = out.Err()
	}

	if err != nil {
		return Key{}, "", fmt.Errorf("export the public key: %w", err)
	}

	return k, string(out.Stdout), nil
}

// Encrypt encrypts a value with a key, and returns the armoured message. name may be empty if only
// one key is ready.
func (p Place) Encrypt(ctx context.Context, name, secret string) (Key, string, error) {
	h, err := p.openCopy(false)
	if err != nil {
		return Key{}, "", err
	}
	defer h.close()

	keys, err := p.listKeys(ctx, h)
	if err != nil {
		return Key{}, "", err
	}

	k, err := choose(keys, name, func(k Key) bool { return k.State == Ready })
	if err != nil {
		return Key{}, "", err
	}
	if k.State != Ready {
		return k, "", fmt.Errorf("nothing is encrypted with key %s: %s", k.Fingerprint, k.State)
	}
	if secret == "" || len(secret) > MaxSecret {
		return k, "", fmt.Errorf("a secret has 1 byte to %d MiB", MaxSecret>>20)
	}

	out, err := h.runGPG(ctx, secret, "--armor", "--encrypt", "--recipient", k.Fingerprint)
	if err == nil {
		err = out.Err()
	}

	if err != nil {
		return k, "", fmt.Errorf("encrypt: %w", err)
	}

	return k, string(out.Stdout), nil
}
