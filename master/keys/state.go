package keys

import (
	"crypto/rsa"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"

	"saltern/master/crypt"
)

// State is the administrator's decision about a key.
type State uint8

// The states. A minion id has a key in at most one of Accepted, Pending and Rejected. In addition
// the id may have a Denied key: a second key that was offered for the id.
const (
	None     State = iota // no key
	Accepted              // may sign in
	Pending               // waits for the administrator
	Rejected              // refused by the administrator
	Denied                // differs from the key on file
	numStates
)

// lookupOrder is the order in which Salt looks for a key (cache/localfs_key.py fetch). If a key is
// in two folders, the stricter state applies.
var lookupOrder = [...]State{Rejected, Pending, Accepted}

// String returns Salt's name of the state.
func (s State) String() string {
	return [...]string{"none", "accepted", "pending", "rejected", "denied", "unknown"}[min(s, numStates)]
}

// Dir returns the name of the state's folder, "" for None.
func (s State) Dir() string {
	return [...]string{"", "minions", "minions_pre", "minions_rejected", "minions_denied", ""}[min(s, numStates)]
}

// Entry is a key and its state at one moment. It does not change when the store changes.
type Entry struct {
	State State
	// PEM is the text of the key, normalised by crypt.NormalizePEM. A file that an administrator
	// put into the folder may contain anything; Public checks the text.
	PEM string
	// Gen is a number that differs for each key that this process has seen. What a caller has
	// concluded from a key remains valid as long as the id's Gen does not change.
	Gen  uint64
	file *keyFile
}

// Public returns the parsed key. The store keeps the parsed key, so that later calls cost nothing.
func (e Entry) Public() (*rsa.PublicKey, error) {
	if e.file == nil {
		return nil, fmt.Errorf("%w: no key", crypt.ErrPublicKey)
	}
	return e.file.public()
}

// keyFile holds a key file's content as of the last read. Everything but the parsed key is
// immutable.
type keyFile struct {
	pem    string
	gen    uint64
	sig    fileSig
	bounds crypt.Bounds
	claim  *claim // nil, or the claim whose file does not exist yet, see claim.go

	once sync.Once
	pub  *rsa.PublicKey
	err  error
}

func (f *keyFile) public() (*rsa.PublicKey, error) {
	f.once.Do(func() { f.pub, f.err = f.bounds.ParsePublic([]byte(f.pem)) })
	return f.pub, f.err
}

// Change describes a new key or a new state of a minion.
type Change struct {
	ID       string
	Old, New State // None, Accepted, Pending or Rejected
	// Gen is the generation of the new key, or 0 when there is none. If the states Old and New are
	// equal, the key itself was replaced.
	Gen uint64
}

// Fingerprint returns the fingerprint of a PEM text as salt-key prints it: the hash of all lines
// but the first and the last, as pairs of hexadecimal digits with colons (utils/crypt.py
// pem_finger). hashType is md5, sha1, sha224, sha256, sha384 or sha512.
func Fingerprint(pem, hashType string) (string, error) {
	if !slices.Contains([]string{"md5", "sha1", "sha224", "sha256", "sha384", "sha512"}, hashType) {
		return "", fmt.Errorf("unknown hash type %.20q for a fingerprint", hashType)
	}

	h := crypt.Hash(hashType)()
	var lines []string
	for line := range strings.Lines(crypt.NormalizePEM(pem)) {
		if strings.TrimSpace(line) != "" {
			lines = append(lines, line)
		}
	}

	for i := 1; i < len(lines)-1; i++ {
		h.Write([]byte(lines[i]))
	}

	digits := hex.EncodeToString(h.Sum(nil))
	var b strings.Builder
	for i := 0; i < len(digits); i += 2 {
		if i > 0 {
			b.WriteByte(':')
		}
		b.WriteString(digits[i : i+2])
	}

	return b.String(), nil
}
