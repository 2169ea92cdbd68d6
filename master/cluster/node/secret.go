package node

import "time"

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
			return false, nil // an earlier command has done this
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
