package main

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"saltern/internal/audit"
	"saltern/master/crypt"
	"saltern/master/keys"
	"saltern/test/fakemaster"
)

// pems are public keys for the tests of salt-key.
func pems(t *testing.T, n int) []string {
	t.Helper()
	var out []string
	for range n {
		k, err := crypt.GeneratePrivate(2048)
		if err != nil {
			t.Fatal(err)
		}

		file := filepath.Join(t.TempDir(), "k.pub")
		if err := crypt.SavePublic(file, &k.PublicKey); err != nil {
			t.Fatal(err)
		}

		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}

		out = append(out, crypt.NormalizePEM(string(b)))
	}

	return out
}

func (h *house) keys(states map[string]string, pem string) {
	h.t.Helper()
	for id, dir := range states {
		d := filepath.Join(h.dir, "pki", dir)
		if err := os.MkdirAll(d, 0o700); err != nil {
			h.t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(d, id), []byte(pem), 0o600); err != nil {
			h.t.Fatal(err)
		}
	}
}

func TestSaltKey(t *testing.T) {
	pem := pems(t, 1)[0]
	h := newHouse(t, nil, "")
	h.keys(map[string]string{
		"m1":  "minions_pre",
		"M0":  "minions_pre",
		"ok":  "minions",
		"no":  "minions_rejected",
		"odd": "minions_denied",
	},
		pem)

	finger, err := keys.Fingerprint(pem, "sha256")
	if err != nil {
		t.Fatal(err)
	}

	const all = "Accepted Keys:\nok\nDenied Keys:\nodd\nUnaccepted Keys:\nM0\nm1\nRejected Keys:\nno\n"
	h.want(h.run("salt-key"), 0, all, "")
	h.want(h.run("salt-key", "-L"), 0, all, "")
	h.want(h.run("salt-key", "-l", "un"), 0, "Unaccepted Keys:\nM0\nm1\n", "")
	h.want(h.run("salt-key", "-l", "acc", "--out=json", "--out-indent=-1"), 0, `{"minions": ["ok"]}`+"\n", "")
	h.want(h.run("salt-key", "-l", "bad"), 64, "",
		"Usage: salt-key [options]\n\nsalt-key: error: 'bad' is not a valid argument to '--list'\n")
	h.want(h.run("salt-key", "-f", "o*"), 0, "Accepted Keys:\nok:  "+finger+"\nDenied Keys:\nodd:  "+finger+"\n", "")
	h.want(h.run("salt-key", "-p", "ok"), 0, "Accepted Keys:\nok:  "+pem+"\n", "")
	h.want(h.run("salt-key", "-a", "nosuch"), 0, "The key glob 'nosuch' does not match any unaccepted keys.\n", "")
	h.want(h.run("salt-key", "-a", "ok", "--include-all", "--include-denied"), 0,
		"The key glob 'ok' does not match any unaccepted, rejected or denied keys.\n", "")

	const asked = "The following keys are going to be accepted:\nUnaccepted Keys:\nm1\n"
	h.in = "n\n"
	h.want(h.run("salt-key", "-a", "m1"), 0, asked+"Proceed? [n/Y] ", "")
	h.in = ""
	h.want(h.run("salt-key", "-a", "m1"), 1, asked+"Proceed? [n/Y] \n", "[ERROR   ] EOF when reading a line\n")
	h.in = "\n"
	h.want(h.run("salt-key", "-a", "m1"), 0, asked+"Proceed? [n/Y] Key for minion m1 accepted.\n", "")
	h.want(h.run("salt-key", "-a", "no", "--include-rejected", "-y"), 0,
		"The following keys are going to be accepted:\nRejected Keys:\nno\nKey for minion no accepted.\n",
		"")
	dfn := filepath.Join(h.dir, "cache", ".dfn")
	if _, err := os.Stat(dfn); err == nil {
		t.Error("accepting asked for new session keys")
	}

	h.want(h.run("salt-key", "-r", "M*", "-y", "--rotate-aes-key=False"), 0,
		"The following keys are going to be rejected:\nUnaccepted Keys:\nM0\nKey for minion M0 rejected.\n",
		"")
	if _, err := os.Stat(dfn); err == nil {
		t.Error("new session keys in spite of --rotate-aes-key=False")
	}

	cached := filepath.Join(h.dir, "cache", "grains")
	if err := os.MkdirAll(cached, 0o700); err != nil {
		t.Fatal(err)
	}

	for _, n := range []string{"m1.p", "ok.p"} {
		if err := os.WriteFile(filepath.Join(cached, n), []byte{0x80}, 0o600); err != nil {
			t.Fatal(err)
		}
	}

	h.in = "y\n"
	h.want(h.run("salt-key", "-d", "m1,no"), 0,
		"The following keys are going to be deleted:\nAccepted Keys:\nm1\nno\nProceed? [N/y] Key for minion m1 deleted.\nKey for minion no deleted.\n",
		"")

	if b, err := os.ReadFile(dfn); err != nil || string(b) != "m1_master" && string(b) != "m1" {
		t.Errorf("no request for new session keys: %q, %v", b, err)
	}

	if _, err := os.Stat(filepath.Join(cached, "m1.p")); err == nil {
		t.Error("TestAttack30: cached grains of a deleted minion are still there")
	}

	if _, err := os.Stat(filepath.Join(cached, "ok.p")); err != nil {
		t.Error("cached grains of another minion are gone")
	}

	h.want(h.run("salt-key", "-L", "--out=json", "--out-indent=-1"), 0,
		`{"minions_pre": [], "minions_rejected": ["M0"], "minions": ["ok"], "minions_denied": ["odd"]}`+"\n", "")
}

// What was deleted is said with --quiet, too, as Salt does.
func TestSaltKeyQuiet(t *testing.T) {
	h := newHouse(t, nil, "")
	h.keys(map[string]string{"r1": "minions_rejected", "p1": "minions_pre"}, pems(t, 1)[0])
	h.want(h.run("salt-key", "-q", "-y", "-d", "r1"), 0,
		"The following keys are going to be deleted:\nRejected Keys:\nr1\nKey for minion r1 deleted.\n",
		"")
	h.want(h.run("salt-key", "-q", "-y", "-a", "p1"), 0,
		"The following keys are going to be accepted:\nUnaccepted Keys:\np1\nKey for minion p1 accepted.\n",
		"")
}

func TestSaltKeyInvalid(t *testing.T) {
	h := newHouse(t, nil, "")
	h.keys(map[string]string{"m1": "minions_pre"}, "no key")
	code := h.run("salt-key", "-A", "-y")
	if code != 1 || strings.Contains(h.out, "accepted.") ||
		!strings.HasPrefix(h.errs, "Unable to accept invalid key for m1.\n") {
		t.Errorf("%d %q %q", code, h.out, h.errs)
	}
	h.want(h.run("salt-key", "-l", "pre"), 0, "Unaccepted Keys:\nm1\n", "")

	// It can be rejected (m9), and not be accepted from there.
	h.want(h.run("salt-key", "-R", "-y"), 0,
		"The following keys are going to be rejected:\nUnaccepted Keys:\nm1\nKey for minion m1 rejected.\n", "")
	if code := h.run("salt-key", "-a", "m1", "--include-rejected", "-y"); code != 1 {
		t.Errorf("accept what is no key: %d %q %q", code, h.out, h.errs)
	}
	h.want(h.run("salt-key", "-l", "rejected"), 0, "Rejected Keys:\nm1\n", "")
}

func TestSaltKeyEvents(t *testing.T) {
	m := fakemaster.New(t)
	h := newHouse(t, m, "")
	h.keys(map[string]string{"m1": "minions_pre"}, pems(t, 1)[0])
	sub := m.Bus.Subscribe("test", 10, nil)
	defer sub.Close()

	h.run("salt-key", "-A", "-y")
	select {
	case e := <-sub.C:
		if e.Tag != "salt/key" || e.Data.Str("act") != "accepted" || e.Data.Str("id") != "m1" ||
			!e.Data.Bool("result") || e.Data.Str("pub") == "" {
			t.Errorf("event %s %v", e.Tag, e.Data.Keys())
		}
	case <-time.After(5 * time.Second):
		t.Error("no event")
	}
}

func TestGenKeys(t *testing.T) {
	h := newHouse(t, nil, "")
	dir := filepath.Join(h.dir, "new")
	code := h.run("salt-key", "--gen-keys=zed", "--gen-keys-dir", dir)
	if code != 0 || !regexp.MustCompile(`^return:\n    ([0-9a-f]{2}:){31}[0-9a-f]{2}\n$`).MatchString(h.out) {
		t.Errorf("%d %q %q", code, h.out, h.errs)
	}

	first := h.out
	if st, err := os.Stat(filepath.Join(dir, "zed.pem")); err != nil || st.Mode().Perm() != 0o400 {
		t.Errorf("%v, %v", st, err)
	}

	h.run("salt-key", "--gen-keys=zed", "--gen-keys-dir", dir)
	if h.out != first {
		t.Error("a key was replaced")
	}

	if code := h.run("salt-key", "--gen-keys=../x", "--gen-keys-dir", dir); code == 0 {
		t.Error("TestAttack13: a key outside of the directory")
	}

	h.want(h.run("salt-key", "--keysize=1024", "--gen-keys=y"), 64, "",
		"Usage: salt-key [options]\n\nsalt-key: error: The minimum value for keysize is 2048\n")

	h.want(h.run("salt-key", "--gen-signature"), 0, "return:\n    No usable private-key found\n", "")
	pki := filepath.Join(h.dir, "pki")
	if err := os.MkdirAll(pki, 0o700); err != nil {
		t.Fatal(err)
	}

	pub, err := keyPair(filepath.Join(pki, "master"), 2048, "", false)
	if err != nil {
		t.Fatal(err)
	}

	h.want(h.run("salt-key", "--gen-signature", "--auto-create"), 0, "return:\n    True\n", "")
	b, err := os.ReadFile(filepath.Join(pki, "m1_master_pubkey_signature"))
	if err != nil {
		t.Fatal(err)
	}

	sig, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}

	sign, err := crypt.LoadPrivate(filepath.Join(pki, "master_sign.pem"), "")
	if err != nil {
		t.Fatal(err)
	}

	if err := crypt.Verify(&sign.PublicKey, "PKCS1v15-SHA1", []byte(crypt.NormalizePEM(string(pub))), sig); err != nil {
		t.Error(err)
	}
}

// What salt-key does is in the audit record: what was asked for, and what became of each
// key, with who is behind it.
func TestSaltKeyIsAudited(t *testing.T) {
	list := pems(t, 2)
	h := newHouse(t, nil, "")
	h.keys(map[string]string{"m1": "minions_pre"}, list[0])
	h.keys(map[string]string{"m2": "minions_pre"}, list[1])

	if code := h.run("salt-key", "-y", "-a", "m*"); code != 0 {
		t.Fatalf("%d %s", code, h.errs)
	}

	h.run("salt-key", "-y", "-d", "none")
	h.run("salt-key", "-L")
	p, err := audit.Read(t.Context(), "n1", audit.Query{}, audit.MasterDir(filepath.Join(h.dir, "cache")))
	if err != nil || len(p.Records) != 3 {
		t.Fatalf("%+v %v", p, err)
	}

	for i, want := range []string{"m1, m2 asked", "m1 ok", "m2 ok"} {
		r := p.Records[i]
		if r.Object+" "+string(r.Result) != want || r.Action != "key.accept" || r.Op != p.Records[0].Op ||
			r.From != audit.Local || r.UID == nil || r.User == "" {
			t.Errorf("%+v, want %s", r, want)
		}

		if finger, _ := keys.Fingerprint(list[max(i-1, 0)], "sha256"); i > 0 && r.Detail != "was pending, "+finger {
			t.Errorf("%+v", r)
		}
	}
}

// Options of our own: keys of one state, and with one fingerprint. A name may have
// several keys.
func TestSaltKeyOnly(t *testing.T) {
	list := pems(t, 3)
	h := newHouse(t, nil, "")
	h.keys(map[string]string{"m1": "minions"}, list[0])
	h.keys(map[string]string{"m2": "minions_pre"}, list[1])
	h.keys(map[string]string{"m1": "minions_denied", "m3": "minions_denied"}, list[2])
	var fingers []string
	for _, p := range list {
		f, err := keys.Fingerprint(p, "sha256")
		if err != nil {
			t.Fatal(err)
		}
		fingers = append(fingers, f)
	}

	there := func(want string) {
		t.Helper()
		h.want(h.run("salt-key"), 0, want, "")
	}

	usage := func(what string) string { return "Usage: salt-key [options]\n\nsalt-key: error: " + what + "\n" }
	h.want(h.run("salt-key", "-L", "--only-state", "den"), 64, "",
		usage("--only-state goes with --delete or --delete-all"))
	h.want(h.run("salt-key", "-d", "x", "--only-state", "all"), 64, "",
		usage("'all' is not a valid argument to '--only-state'"))
	h.want(h.run("salt-key", "-L", "--only-fingerprint", "x"), 64, "",
		usage("--only-fingerprint goes with --accept, --reject or --delete"))
	h.want(h.run("salt-key", "-y", "-a", "m2", "--only-fingerprint", fingers[0]), 1,
		"The key glob 'm2' does not match any unaccepted keys.\n", "")

	if code := h.run("salt-key", "-y", "-d", "m1,m2", "--only-state", "denied"); code != 0 {
		t.Fatalf("%d %s", code, h.errs)
	}

	there("Accepted Keys:\nm1\nDenied Keys:\nm3\nUnaccepted Keys:\nm2\nRejected Keys:\n")
	if code := h.run("salt-key", "-y", "-a", "m*", "--only-fingerprint", strings.ToUpper(fingers[1])); code != 0 {
		t.Fatalf("%d %s", code, h.errs)
	}

	if code := h.run("salt-key", "-y", "-D", "--only-fingerprint", fingers[2]); code != 0 {
		t.Fatalf("%d %s", code, h.errs)
	}

	there("Accepted Keys:\nm1\nm2\nDenied Keys:\nUnaccepted Keys:\nRejected Keys:\n")
}
