package setup

import "testing"

// The masters name secrets in the same way (master/cluster/node).
func TestSecretFinger(t *testing.T) {
	if got := SecretFinger("seed", "the-first-secret-of-all"); got != "k18c6db13d963ec32" {
		t.Errorf("%s", got)
	}
	if SecretFinger("", "the-first-secret-of-all") != "" || SecretFinger("seed", "") != "" {
		t.Error("something out of nothing")
	}
}
