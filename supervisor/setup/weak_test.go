package setup

import (
	"crypto/rand"
	"encoding/hex"
	"strings"
	"testing"
)

func TestFinding14WeakSecrets(t *testing.T) {
	facts := Facts{
		Hostname:   "n2",
		Interfaces: []Interface{{Name: "eth0", Default: true, Addresses: []string{"192.0.2.7/24"}}},
	}

	for _, s := range []string{"aaaaaaaaaaaaaaaa", "passwordpassword", "1234567890123456",
		"abcabcabcabcabcabc", "qwertyuiopasdfghjkl", "P@ssw0rdP@ssw0rd1",
		"Password12345678", "abcdefghijklmnop", "0987654321098765", "saltern-cluster-1", "secretsecretsecret", "change-me-0123456789abcdef", "Summer2024Summer2024",
		"1q2w3e4r5t6y7u8i", "aaaaaaaabbbbbbbb", strings.Repeat("ab", 40), strings.Repeat("xkcd", 32)} {
		join := JoinInfo{KeyHash: someHash, Secret: s, Peers: []string{"192.0.2.1"}}.String()
		for what, a := range map[string]Answers{
			"form": {
				Mode:   Form,
				Secret: s,
			}, "join": {Mode: Join, Secret: s, Peers: []string{"192.0.2.1"}}, "join string": {JoinString: join},
		} {
			v := Validate(a, facts, Base{})
			said := ""
			for _, f := range v.Faults {
				said += f.Field + ": " + f.Message + "\n"
			}

			if !strings.Contains(said, "too easy to guess") || strings.Contains(said, s) {
				t.Errorf("%s with %q: %q", what, s, said)
			}
		}
	}
}

// TestGoodSecrets: what we make, what openssl makes, and words that people
// choose at random are taken.
func TestGoodSecrets(t *testing.T) {
	for _, s := range []string{"correct-horse-battery-staple", "Vinegar.Tulip.Anchor.9",
		"the-first-secret-of-all", "kettle river copper mosaic"[:16] + "-mosaic"} {
		if w := WeakSecret(s); w != "" {
			t.Errorf("%s: %s", s, w)
		}
	}

	for range 2000 {
		b := make([]byte, 10)
		_, _ = rand.Read(b)
		for _, s := range []string{rand.Text() + rand.Text()[:6], hex.EncodeToString(b)} {
			if w := WeakSecret(s); w != "" {
				t.Errorf("%s: %s", s, w)
			}
		}
	}
}
