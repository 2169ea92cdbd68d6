package control

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// Secrets is the part of the masters' record that supervisors read.
type Secrets struct {
	// Secret replaces cluster_secret once a master was removed or the secret
	// was changed; empty until then.
	Secret string `json:"secret,omitempty"`
	// NextSecret takes its place when all nodes have it; until then either is
	// taken from masters that join.
	NextSecret string `json:"next_secret,omitempty"`
	// Seed is the seed of the minions' session keys, in hexadecimal; it
	// changes when a master is removed.
	Seed string `json:"seed"`
}

// FingerPrefix begins the names of secrets; versions that hashed the secret
// alone began them with s. With it a name is never a number, whoever reads it.
const FingerPrefix = "k"

// SecretFinger names a secret without telling it: by a MAC whose key is the
// seed, so that who sees the name, in a log or an argument, has nothing to
// compare guesses with. It is empty without a secret or a seed.
func (s Secrets) SecretFinger(secret string) string {
	if s.Seed == "" || secret == "" {
		return ""
	}
	m := hmac.New(sha256.New, []byte(s.Seed))
	fmt.Fprintf(m, "saltern cluster secret 2\n%s", secret)
	return FingerPrefix + hex.EncodeToString(m.Sum(nil)[:8])
}
