package minions

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"saltern/master/internal/mastertest"
	"saltern/master/keys"
	"saltern/master/value"
	"saltern/master/zmtp"
	"saltern/test/check"
)

// TestFinding15PendingKeys: a stranger who sends one public key under id after id
// over one connection does not fill the store; minions that come later get in,
// and the status names him.
func TestFinding15PendingKeys(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t, "auth_events: False\n")
	connect := func(from string) *zmtp.Req {
		q, err := zmtp.DialReq(t.Context(), r.RequestAddress,
			zmtp.DialConfig{Dialer: net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}})
		check.Must(t, err)
		t.Cleanup(func() { q.Close() })
		return q
	}

	signIn := func(q *zmtp.Req, id, key string) {
		l := value.NewMap("cmd", "_auth", "id", id, "nonce", mastertest.NewNonce(), "enc_algo", "OAEP-SHA1", "sig_algo",
			"PKCS1v15-SHA1", "pub", mastertest.PublicPEM(t, mastertest.KeyPair(t, key)))
		_, err := q.Do(t.Context(), mustPack(value.NewMap("enc", "clear", "load", l, "version", 3)))
		check.Must(t, err)
	}

	evil := connect("127.9.9.9")
	for i := range 200 {
		signIn(evil, fmt.Sprint("evil", i), "min7")
	}

	if n := r.Parts.Keys.Count(keys.Pending); n > 20 {
		t.Errorf("%d keys of one stranger wait", n)
	}

	signIn(connect("127.9.9.10"), "min1", "min7") // whose public key he has
	signIn(connect("127.9.9.11"), "min2", "min8")
	for _, id := range []string{"min1", "min2"} {
		if e, _ := r.Parts.Keys.Lookup(id); e.State != keys.Pending {
			t.Errorf("%s is %s", id, e.State)
		}
	}

	r.Parts.Reporter.Write()
	said := ""
	for _, p := range r.Parts.Problems.List() {
		said += string(p.What) + ": " + p.Text
	}

	if !strings.Contains(said, "new keys: too many from 127.9.9.9,") {
		t.Errorf("problems: %q", said)
	}
}
