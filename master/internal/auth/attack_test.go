package auth_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"saltern/master/crypt"
	"saltern/master/internal/auth"
	"saltern/master/keys"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

// What is no sign-in gets a short text and leaves nothing behind. (Whether
// the protocol version is acceptable is the request server's question.)
func TestAttack7BadLoads(t *testing.T) {
	m := newMaster(t, options{autosign: keys.AutosignConfig{AutoAccept: true}})
	n := newMinion(t, "m", "min6")
	for name, change := range map[string]func(*value.Map){
		"no nonce":      func(l *value.Map) { l.Delete("nonce") },
		"empty nonce":   func(l *value.Map) { l.Set("nonce", "") },
		"long nonce":    func(l *value.Map) { l.Set("nonce", strings.Repeat("a", 1000)) },
		"nonce bytes":   func(l *value.Map) { l.Set("nonce", []byte{0xff}) },
		"id number":     func(l *value.Map) { l.Set("id", int64(1)) },
		"id bytes":      func(l *value.Map) { l.Set("id", []byte{0xff}) },
		"id list":       func(l *value.Map) { l.Set("id", []any{"m"}) },
		"pub number":    func(l *value.Map) { l.Set("pub", int64(1)) },
		"pub megabyte":  func(l *value.Map) { l.Set("pub", strings.Repeat("A", 1<<20)) },
		"token number":  func(l *value.Map) { l.Set("token", int64(1)) },
		"algo number":   func(l *value.Map) { l.Set("enc_algo", int64(1)) },
		"sig algo list": func(l *value.Map) { l.Set("sig_algo", []any{}) },
	} {
		load := n.load(t)
		change(load)
		if got := m.SignIn(context.Background(), load, 3, peer); got != "bad load" {
			t.Errorf("%s: %v", name, got)
		}
	}

	if got := m.SignIn(context.Background(), value.NewMap(), 3, peer); got != "bad load" {
		t.Errorf("empty load: %v", got)
	}

	if m.keys.Count(keys.Accepted)+m.keys.Count(keys.Pending)+len(m.events) != 0 {
		t.Error("something was kept")
	}
}

// An answer carries the nonce of its own request, inside the signed part: a
// recorded answer is of no use for another request.
func TestAttack8NonceEcho(t *testing.T) {
	m := newMaster(t, options{})
	check.Must(t, m.keys.Put("a", keys.Accepted, publicText(t, "min6")))
	check.Must(t, m.keys.Put("r", keys.Rejected, publicText(t, "min6")))
	for _, id := range []string{"a", "p", "r"} {
		seen := map[string]bool{}
		for i := range 3 {
			n := newMinion(t, id, "min6")
			n.nonce = fmt.Sprintf("%032d", i)
			payload := m.SignIn(context.Background(), n.load(t), 3, peer).(*value.Map)
			n.check(t, payload) // signature and nonce
			load, _ := payload.Bytes("load")
			seen[string(load)] = true
		}

		if len(seen) != 3 {
			t.Errorf("%s: %d different answers", id, len(seen))
		}
	}
}

// A sign-in recorded from another minion is answered with keys that only the
// other one can read.
func TestAttack8ReplayedSignIn(t *testing.T) {
	m := newMaster(t, options{})
	check.Must(t, m.keys.Put("a", keys.Accepted, publicText(t, "min6")))
	honest := newMinion(t, "a", "min6")
	load := honest.load(t)
	payload := m.SignIn(context.Background(), load, 3, peer).(*value.Map)
	packed, _ := payload.Bytes("load")
	s := decode(t, packed)
	thief := private(t, "min8")
	for _, field := range []string{"aes", "session"} {
		ct, _ := s.Bytes(field)
		if _, err := crypt.Decrypt(thief, crypt.OAEPSHA1, ct); !errors.Is(err, crypt.ErrDecrypt) {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// There is no request to which the keys come without a signature.
func TestAttack10SignaturePresent(t *testing.T) {
	m := newMaster(t, options{})
	check.Must(t, m.keys.Put("a", keys.Accepted, publicText(t, "min6")))
	for _, version := range []int64{2, 3, 4, 1 << 40} {
		for _, id := range []string{"a", "p", "../x"} {
			n := newMinion(t, id, "min6")
			n.check(t, m.SignIn(context.Background(), n.load(t), version, peer))
		}
	}

	other := private(t, "min7")
	n := newMinion(t, "a", "min6")
	p := m.SignIn(context.Background(), n.load(t), 3, peer).(*value.Map)
	load, _ := p.Bytes("load")
	sig, _ := p.Bytes("sig")
	if err := crypt.Verify(&other.PublicKey, n.sig, load, sig); !errors.Is(err, crypt.ErrSignature) {
		t.Error("verifies with another key")
	}

	load[len(load)/2] ^= 1
	if err := crypt.Verify(n.masterKey, n.sig, load, sig); !errors.Is(err, crypt.ErrSignature) {
		t.Error("verifies after a change")
	}
}

func TestAttack13SignInIDs(t *testing.T) {
	dir := t.TempDir()
	m := newMaster(t,
		options{dir: dir, auth: auth.Config{OpenMode: true}, autosign: keys.AutosignConfig{AutoAccept: true}})
	before := tree(t, dir)

	for _, id := range []string{"", ".", "..", "../../etc/x", "a/b", `a\b`, "a\x00b", "a\nb", ".dfn",
		".key_cache", "*", strings.Repeat("a", 4096)} {
		n := newMinion(t, id, "min6")
		if got := n.signIn(t, m); got.Str("enc") != "" || got.Bool("ret") {
			t.Errorf("%.20q: %v", id, got)
		}

		if _, _, err := m.OpenRequest(id, []byte("x")); !errors.Is(err, keys.ErrID) {
			t.Errorf("%.20q: %v", id, err)
		}

		if m.VerifyToken(id, n.tok(t)) {
			t.Errorf("%.20q: token taken", id)
		}
	}

	if after := tree(t, dir); after != before {
		t.Errorf("files before:\n%s\nafter:\n%s", before, after)
	}
}

func tree(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	check.Must(t, filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		fmt.Fprintln(&b, path)
		return err
	}))
	return b.String()
}

// Bad keys are refused quickly, not stored, and others are not kept waiting.
func TestAttack18SignInKeys(t *testing.T) {
	m := newMaster(t, options{autosign: keys.AutosignConfig{AutoAccept: true}})
	n := newMinion(t, "m", "min6")
	good := publicText(t, "min6")
	for _, pub := range []string{"", "x", good[:200], strings.Replace(good, "MIIB", "MIIC", 1),
		strings.Repeat("A", 4000)} {
		load := n.load(t)
		load.Set("pub", pub)
		payload, ev := m.SignInEvent(context.Background(), load, 3, peer)
		if got := n.check(t, payload); got.Bool("ret") || got.Str("enc") != "" || ev.Act != auth.ActError {
			t.Errorf("%.20q: %v %+v", pub, got, ev)
		}
	}

	if m.keys.Count(keys.Accepted)+m.keys.Count(keys.Pending)+m.keys.Count(keys.Rejected) != 0 {
		t.Error("stored")
	}

	// A bad key offered for an accepted id is not kept among the denied.
	check.Must(t, m.keys.Put("m", keys.Accepted, good))
	load := n.load(t)
	load.Set("pub", "garbage")
	if _, ev := m.SignInEvent(context.Background(), load, 3, peer); ev.Act != auth.ActDenied {
		t.Errorf("%+v", ev)
	}

	if m.keys.Count(keys.Denied) != 0 {
		t.Error("garbage among the denied keys")
	}

	// An unusable file among the accepted keys locks nobody else out.
	check.Must(t, os.WriteFile(filepath.Join(m.dir, "pki/minions/bad"), []byte("garbage"), 0o600))
	m.keys.Refresh("bad")
	load = newMinion(t, "bad", "min6").load(t)
	load.Set("pub", "garbage")

	if got := n.check(t, m.SignIn(context.Background(), load, 3, peer)); got.Bool("ret") || got.Str("enc") != "" {
		t.Error(got)
	}
}

// A crowd of new ids fills what is there for strangers; an accepted minion
// still signs in, and the store stays bounded.
func TestAttack22Flood(t *testing.T) {
	const bound = 20
	m := newMaster(t, options{
		auth:  auth.Config{Workers: 2, Queue: 8, MaxWait: 2 * time.Second},
		store: keys.Config{MaxPending: bound},
	})

	check.Must(t, m.keys.Put("good", keys.Accepted, publicText(t, "min6")))
	stranger := newMinion(t, "x", "min8").load(t)
	ctx, stop := context.WithCancel(context.Background())
	var flood sync.WaitGroup
	var mu sync.Mutex
	answers := map[string]int{}
	for w := range 24 {
		flood.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				load := stranger.Clone()
				load.Set("id", fmt.Sprintf("flood-%d-%d", w, i))
				_, ev := m.SignInEvent(ctx, load, 3, peer)
				mu.Lock()
				answers[ev.Act]++
				mu.Unlock()
			}
		})
	}

	n := newMinion(t, "good", "min6")
	var worst time.Duration
	for range 20 {
		start := time.Now()
		if got := n.signIn(t, m); got.Str("enc") != "pub" {
			t.Errorf("the good minion got %v", got)
		}
		worst = max(worst, time.Since(start))
	}

	// The flood goes on until the store is full, however slow the machine.
	await.Within(time.Minute, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return answers[auth.ActFull] > 0 && m.Stats().Busy > 0
	})

	stop()
	flood.Wait()
	t.Logf("worst sign-in of the good minion %v, answers %v, %+v", worst, answers, m.Stats())
	if worst > 3*time.Second {
		t.Errorf("the good minion waited %v", worst)
	}

	if p := m.keys.Count(keys.Pending); p == 0 || p > bound {
		t.Errorf("%d pending", p)
	}

	if answers[auth.ActFull] == 0 || m.Stats().Busy == 0 {
		t.Errorf("nobody was turned away: %v %+v", answers, m.Stats())
	}
}

// As many bad sign-ins as there are workers, and more, change nothing
// (CVE-2023-20897).
func TestAttack23BadPackets(t *testing.T) {
	m := newMaster(t, options{auth: auth.Config{Workers: 2, Queue: 2}})
	check.Must(t, m.keys.Put("good", keys.Accepted, publicText(t, "min6")))
	n := newMinion(t, "good", "min6")
	bad := []*value.Map{value.NewMap(), nil}
	for _, key := range []string{"id", "nonce", "enc_algo", "sig_algo", "pub", "token", "autosign_grains"} {
		for _, v := range []any{nil, int64(-1), "", []byte{0xff, 0xfe}, []any{}, value.NewMap("x", "y"), 1.5,
			true, strings.Repeat("x", 3000)} {
			load := n.load(t)
			load.Set(key, v)
			bad = append(bad, load)
		}
	}

	token := n.load(t)
	token.Set("token", make([]byte, 256))
	bad = append(bad, token)
	var wg sync.WaitGroup
	for _, load := range bad {
		wg.Go(func() { m.SignIn(context.Background(), load, 3, peer) })
	}

	wg.Wait()
	if got := n.signIn(t, m); got.Str("enc") != "pub" {
		t.Error(got)
	}

	// A token that does not open: an answer without one, as in Salt.
	p := m.SignIn(context.Background(), token, 3, peer)
	if s := n.check(t, p); s.Str("enc") != "pub" {
		t.Error(s)
	} else if _, has := s.Get("token"); has {
		t.Error("a token came back")
	}
}

// The master opens tokens only, not whatever was encrypted for its key.
func TestTokenIsNoOracle(t *testing.T) {
	m := newMaster(t, options{})
	check.Must(t, m.keys.Put("m", keys.Accepted, publicText(t, "min6")))
	n := newMinion(t, "m", "min6")
	secret, err := crypt.Encrypt(n.masterKey, n.enc, []byte("secret of somebody else"))
	check.Must(t, err)
	load := n.load(t)
	load.Set("token", secret)
	if _, has := n.check(t, m.SignIn(context.Background(), load, 3, peer)).Get("token"); has {
		t.Error("opened")
	}
}

// A session key is good in its epoch and the next, then at once no more.
func TestAttack29SessionExpiry(t *testing.T) {
	m := newMaster(t, options{secrets: auth.SecretsConfig{PublishSession: 24 * time.Hour}})
	check.Must(t, m.keys.Put("m", keys.Accepted, publicText(t, "min6")))
	n := newMinion(t, "m", "min6")
	n.signIn(t, m)
	first := n.session
	blob := first.Seal([]byte{0xc0}, "")
	changed := false
	for h := range 72 {
		body, key, err := m.OpenRequest("m", bytes.Clone(blob))
		n.signIn(t, m)
		changed = changed || n.session.String() != first.String()
		switch {
		case h <= 24 && (err != nil || !bytes.Equal(body, []byte{0xc0}) || key.String() != first.String()):
			t.Fatalf("after %d h: %v", h, err)
		case h >= 48 && !errors.Is(err, crypt.ErrOpen):
			t.Fatalf("after %d h: %v", h, err)
		}

		m.clock.add(time.Hour)
	}

	if !changed {
		t.Error("the session key never changed")
	}
}

// Nothing of a deleted minion works for the one that takes its name
// (CVE-2016-9639), nor for itself, and that at once.
func TestAttack30DeletedKey(t *testing.T) {
	m := newMaster(t, options{})
	check.Must(t, m.keys.Put("m", keys.Accepted, publicText(t, "min6")))
	n := newMinion(t, "m", "min6")
	n.signIn(t, m)
	blob, tok := n.session.Seal([]byte{0xc0}, ""), n.tok(t)
	works := func() bool {
		_, _, err := m.OpenRequest("m", bytes.Clone(blob))
		return err == nil && m.VerifyToken("m", tok)
	}

	if first, second := works(), works(); !first || !second {
		t.Fatal("a good request is refused")
	}

	check.Must(t, m.keys.Delete("m"))
	if works() || m.VerifyToken("m", tok) {
		t.Error("good after deletion")
	}

	if _, _, err := m.OpenRequest("m", bytes.Clone(blob)); !errors.Is(err, auth.ErrNotAccepted) {
		t.Error(err)
	}

	check.Must(t, m.keys.Put("m", keys.Accepted, publicText(t, "min7")))
	if m.VerifyToken("m", tok) {
		t.Error("the old token is good for the new key")
	}

	if _, _, err := m.OpenRequest("m", bytes.Clone(blob)); !errors.Is(err, crypt.ErrOpen) {
		t.Error("the old session is good for the new key", err)
	}

	heir := newMinion(t, "m", "min7")
	heir.signIn(t, m)
	if heir.session.String() == n.session.String() {
		t.Error("the new key has the old session")
	}

	if !m.VerifyToken("m", heir.tok(t)) {
		t.Error("the new token is refused")
	}

	for _, st := range []keys.State{keys.Rejected, keys.Pending} {
		check.Must(t, m.keys.Move("m", st))
		if m.VerifyToken("m", heir.tok(t)) {
			t.Errorf("good while %s", st)
		}
		if _, err := m.Private("m", auth.Algorithms{}, "", value.NewMap()); !errors.Is(err, auth.ErrNotAccepted) {
			t.Errorf("encrypted for a %s minion", st)
		}
	}
}

// TestDeletedKeyIsNotComparedWith: a minion that comes with a new key is not refused for one that an
// administrator has deleted a moment ago and that this master still remembers. A flood of other keys
// does not make the master read files without a bound, and refuses nobody for good meanwhile.
func TestDeletedKeyIsNotComparedWith(t *testing.T) {
	m := newMaster(t, options{})
	check.Must(t, m.keys.Put("m", keys.Accepted, publicText(t, "min6")))
	check.Must(t, os.Remove(filepath.Join(m.dir, "pki", keys.Accepted.Dir(), "m"))) // nobody tells the master

	_, ev := m.SignInEvent(t.Context(), newMinion(t, "m", "min7").load(t), 3, peer)
	if e, _ := m.keys.Lookup("m"); ev.Act != auth.ActPend || e.State != keys.Pending {
		t.Errorf("%q, and its key is %s", ev.Act, e.State)
	}
	if _, denied := m.keys.Denied("m"); denied {
		t.Error("the new key was kept as denied")
	}

	const others, files = 130, 100 // so many files are read at once at most
	stranger := newMinion(t, "other", "min7")
	acts := map[string]int{}
	for i := range others {
		id := fmt.Sprint("other", i)
		check.Must(t, os.WriteFile(filepath.Join(m.dir, "pki", keys.Accepted.Dir(), id), []byte(publicText(t, "min6")), 0o600))
		m.keys.Refresh(id)
		for range 3 { // the file is read for the first of them
			load := stranger.load(t)
			load.Set("id", id)
			_, ev := m.SignInEvent(t.Context(), load, 3, peer)
			acts[ev.Act]++
		}
		if e, _ := m.keys.Lookup(id); e.State != keys.Accepted {
			t.Errorf("the key of %s is %s", id, e.State)
		}
	}
	if denied := acts[auth.ActDenied]; denied > 3*files || denied < 3*(files-1) || denied+acts[""] != 3*others {
		t.Errorf("%v", acts)
	}
}

func TestAttack31Warnings(t *testing.T) {
	var out bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&out, nil))
	m := newMaster(t,
		options{auth: auth.Config{OpenMode: true, Logger: logger}, autosign: keys.AutosignConfig{AutoAccept: true}})
	if w := m.Warnings(); len(w) != 2 || !strings.Contains(w[0], "open_mode") ||
		!strings.Contains(w[1], "auto_accept") {
		t.Errorf("warnings %q", w)
	}

	if s := out.String(); strings.Count(s, "level=WARN") != 2 {
		t.Errorf("log %s", s)
	}

	if w := newMaster(t, options{}).Warnings(); len(w) != 0 {
		t.Errorf("warnings %q", w)
	}
}

// Ids come into the log escaped, and a mismatch that somebody repeats for
// ever does not fill it.
func TestAttack25Logs(t *testing.T) {
	var out bytes.Buffer
	m := newMaster(t,
		options{auth: auth.Config{Logger: slog.New(slog.NewTextHandler(&out,
			&slog.HandlerOptions{Level: slog.LevelWarn}))}})
	check.Must(t, m.keys.Put("m", keys.Accepted, publicText(t, "min6")))
	n := newMinion(t, "m", "min8")
	for range 200 {
		m.SignIn(context.Background(), n.load(t), 3, peer)
	}

	if lines := strings.Count(out.String(), "\n"); lines == 0 || lines > 25 {
		t.Errorf("%d lines", lines)
	}

	m.clock.add(time.Minute)
	m.SignIn(context.Background(), n.load(t), 3, peer)
	if !strings.Contains(out.String(), "count=180") {
		t.Error("what was left out is not told")
	}

	evil := newMaster(t, options{auth: auth.Config{Logger: slog.New(slog.NewTextHandler(&out, nil))}})
	evil.SignIn(context.Background(), newMinion(t, "a\nlevel=ERROR msg=fake\x1b[2J", "min6").load(t), 3, peer)
	if strings.Contains(out.String(), "\nlevel=ERROR msg=fake") || strings.Contains(out.String(), "\x1b") {
		t.Error("a line was forged")
	}
}

// Secrets are in no log, whatever is logged.
func TestAttack27NoSecretsInLogs(t *testing.T) {
	var out bytes.Buffer
	logger := slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	m := newMaster(t,
		options{
			auth:     auth.Config{Logger: logger},
			secrets:  auth.SecretsConfig{Logger: logger},
			autosign: keys.AutosignConfig{AutoAccept: true},
		})

	n := newMinion(t, "m", "min6")
	n.withToken = true
	n.signIn(t, m)
	m.VerifyToken("m", n.tok(t))
	logger.Info("canary", "secrets", fmt.Sprintf("%v %+v", m.secrets.PublishKey(), n.session))
	seed, err := os.ReadFile(filepath.Join(m.dir, ".session_seed"))
	check.Must(t, err)

	for name, secret := range map[string]string{
		"publish key": n.aes.String(), "session key": n.session.String(), "token": n.token.String(), "seed": string(seed),
	} {
		if len(secret) < 20 || strings.Contains(out.String(), secret[:16]) {
			t.Errorf("the %s is in the log", name)
		}
	}
}
