package node

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"time"
)

// reasonWrongSecret is the reason of a refusal, which peers and administrators read.
const reasonWrongSecret = "wrong cluster_secret"

// secret returns the current secret that joining masters must present. It returns "" only if the
// options permit that, or while the record has no seed.
func (n *Node) secret(r *Record) string {
	switch {
	case r.Secret != "":
		return r.Secret
	case n.cfg.Secret != "" || n.cfg.AllowEmptySecret:
		return n.cfg.Secret
	}
	return folderSecret(r)
}

// secretFor returns the secret that this master presents when it joins. own reports whether the
// master that admits it is Saltern's. Salt's masters know the option cluster_secret only.
func (n *Node) secretFor(own bool) string {
	if n.cfg.Secret != "" || !own {
		return n.cfg.Secret
	}
	return n.secret(&n.rec)
}

// folderSecret returns the secret of a cluster whose option cluster_secret is empty. Whoever can
// derive this secret has read the record in the shared folder, and so could also read the cluster's
// private key there. The secret changes with the seed, that is with each removal.
func folderSecret(r *Record) string {
	if r.Seed == "" {
		return ""
	}
	m := hmac.New(sha256.New, []byte(r.Seed))
	m.Write([]byte("saltern cluster secret of the shared folder 1"))
	return hex.EncodeToString(m.Sum(nil)[:20])
}

func sameSecret(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

func (n *Node) newSecret() string { return n.cfg.Random.Token() + n.cfg.Random.Token()[:8] }

// changeSecret creates the next secret (Stage), or makes the next secret the current one (Commit).
// Repeating either step does no harm.
func (n *Node) changeSecret(now time.Time, c Command) {
	ok := n.queueIntent(now, &intent{name: "secret", apply: func(r *Record) (bool, error) {
		switch {
		case c.Stage && r.NextSecret != "":
			return false, nil
		case c.Stage:
			r.NextSecret = n.newSecret()
		case r.NextSecret == "" && r.Secret != "" && r.SecretFinger(r.Secret) == c.Commit:
			return false, nil // an earlier command has already made this secret the current one
		case r.NextSecret == "" || r.SecretFinger(r.NextSecret) != c.Commit:
			return false, ErrNotStaged
		default:
			r.Secret, r.NextSecret = r.NextSecret, ""
		}

		return true, nil
	}, done: n.answer(c.ID)})
	if !ok {
		n.answer(c.ID)(now, errBusy)
	}
}

// acceptsSecret reports whether a joining master may join with this secret: the current or the next
// one.
func (n *Node) acceptsSecret(r *Record, shown string) bool {
	next := r.NextSecret != "" && sameSecret(r.NextSecret, shown)
	return sameSecret(n.secret(r), shown) || next
}
