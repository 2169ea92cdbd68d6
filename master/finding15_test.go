package master

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"saltern/master/keys"
	"saltern/master/value"
	"saltern/master/zmtp"
)

// TestFinding15PendingKeys: a stranger who sends one public key under id after id
// over one connection does not fill the store; minions that come later get in,
// and the status names him.
func TestFinding15PendingKeys(t *testing.T) {
	t.Parallel()
	r := startMaster(t, "auth_events: False\n")
	connect := func(from string) *zmtp.Req {
		q, err := zmtp.DialReq(t.Context(), r.req,
			zmtp.DialConfig{Dialer: net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}})
		must(t, err)
		t.Cleanup(func() { q.Close() })
		return q
	}

	signIn := func(q *zmtp.Req, id, key string) {
		l := value.NewMap("cmd", "_auth", "id", id, "nonce", newNonce(), "enc_algo", "OAEP-SHA1", "sig_algo",
			"PKCS1v15-SHA1", "pub", pemOf(t, pair(t, key)))
		_, err := q.Do(t.Context(), mustPack(value.NewMap("enc", "clear", "load", l, "version", 3)))
		must(t, err)
	}

	evil := connect("127.9.9.9")
	for i := range 200 {
		signIn(evil, fmt.Sprint("evil", i), "min7")
	}

	if n := r.m.keys.Count(keys.Pending); n > 20 {
		t.Errorf("%d keys of one stranger wait", n)
	}

	signIn(connect("127.9.9.10"), "min1", "min7") // whose public key he has
	signIn(connect("127.9.9.11"), "min2", "min8")
	for _, id := range []string{"min1", "min2"} {
		if e, _ := r.m.keys.Lookup(id); e.State != keys.Pending {
			t.Errorf("%s is %s", id, e.State)
		}
	}

	r.m.reporter.Write()
	said := ""
	for _, p := range r.m.problems.List() {
		said += string(p.What) + ": " + p.Text
	}

	if !strings.Contains(said, "new keys: too many from 127.9.9.9,") {
		t.Errorf("problems: %q", said)
	}
}
