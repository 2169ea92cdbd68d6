package control

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// Secrets is the part of the masters' record that supervisors read.
type Secrets struct {
	// Secret replaces the option cluster_secret after a master was removed or the secret was
	// changed. It is empty before that.
	Secret string `json:"secret,omitempty"`
	// NextSecret becomes Secret when all nodes have it. Until then a joining master may
	// authenticate with NextSecret or with Secret.
	NextSecret string `json:"next_secret,omitempty"`
	// Seed is the seed of the minions' session keys, in hexadecimal. It changes when a master is
	// removed.
	Seed string `json:"seed"`
}

// FingerPrefix is the beginning of each secret's name, so that no reader takes a name for a number.
// Versions that hashed the secret without the seed used the prefix s.
const FingerPrefix = "k"

// SecretFinger returns a name for a secret that does not reveal it: a MAC whose key is the seed.
// Whoever sees the name, in a log or an argument, cannot use it to check guesses of the secret. The
// name is empty without a secret or a seed.
func (s Secrets) SecretFinger(secret string) string {
	if s.Seed == "" || secret == "" {
		return ""
	}
	m := hmac.New(sha256.New, []byte(s.Seed))
	fmt.Fprintf(m, "saltern cluster secret 2\n%s", secret)
	return FingerPrefix + hex.EncodeToString(m.Sum(nil)[:8])
}
