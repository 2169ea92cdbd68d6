package nodeapi

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"saltern/supervisor/nodes"
	"saltern/supervisor/options"
	"saltern/supervisor/upgrade/rollout"
)

// machine is a system that takes what it is given.
type machine struct {
	st    rollout.State
	got   string
	err   error
	asked string
}

func (m *machine) State(context.Context) (rollout.State, error) { return m.st, m.err }
func (m *machine) Install(_ context.Context, r io.Reader) error {
	h := sha256.New()
	n, err := io.Copy(h, r)
	m.got = fmt.Sprintf("%d %x", n, h.Sum(nil))
	return errors.Join(err, m.err)
}
func (m *machine) Restart(_ context.Context, v string) error {
	m.asked = v
	return m.err
}

// A member hands a version to another node, whole, and asks how it is; nobody else can.
func TestSystem(t *testing.T) {
	c := startNode(t)
	m := &machine{st: rollout.State{Image: true, Version: "1\n\x1b[2J" + strings.Repeat("x", 1<<12), Keys: 1}}
	c.system = m
	member := identity(t)
	c.mu.Lock()
	c.table.Put(nodes.Node{Name: "n2", Address: "127.0.70.2", State: nodes.Member, Certificate: member.Hash})
	c.mu.Unlock()

	client := NewClient(member, c.address, c.id.Hash)
	defer client.Close()
	st, err := client.System().State(t.Context())
	if err != nil || !st.Image || st.Keys != 1 || len(st.Version) > 1<<10 || strings.ContainsAny(st.Version, "\x1b\n") {
		t.Errorf("%+v %v", st, err)
	}

	big := bytes.Repeat([]byte("saltern "), 2<<20)
	if err := client.System().Install(t.Context(), bytes.NewReader(big)); err != nil ||
		m.got != fmt.Sprintf("%d %x", len(big), sha256.Sum256(big)) {
		t.Errorf("%s %v", m.got, err)
	}

	if err := client.System().Restart(t.Context(), "2"); err != nil || m.asked != "2" {
		t.Errorf("%q %v", m.asked, err)
	}

	m.err = errors.New("the signature is not of a key that this node trusts")
	if err := client.System().Install(t.Context(), strings.NewReader("x")); err == nil ||
		!strings.Contains(err.Error(), "is not of a key") {
		t.Errorf("%v", err)
	}

	if err := client.System().Restart(t.Context(), "2"); err == nil ||
		!strings.Contains(err.Error(), "is not of a key") {
		t.Errorf("%v", err)
	}

	stranger := NewClient(identity(t), c.address, c.id.Hash)
	defer stranger.Close()
	m.err = nil
	m.got = ""
	m.asked = ""

	if _, err := stranger.System().State(t.Context()); !errors.Is(err, errStranger) {
		t.Errorf("a stranger: %v", err)
	}

	if err := errors.Join(stranger.System().Install(t.Context(), strings.NewReader("x")),
		stranger.System().Restart(t.Context(), "2")); err == nil || m.got+m.asked != "" {
		t.Errorf("a stranger: %v, %q %q", err, m.got, m.asked)
	}

	if err := asOldNode(&httpError{http.StatusNotFound, "404"}); !errors.Is(err, rollout.ErrOld) || errors.Is(err, options.ErrOld) {
		t.Errorf("%v", err)
	}

	// The other side may still be at it when we have given up.
	broken := io.MultiReader(strings.NewReader("half"), &brokenReader{})
	if err := client.System().Install(t.Context(), broken); err == nil {
		t.Error("half a file was taken")
	}
}

type brokenReader struct{}

func (*brokenReader) Read([]byte) (int, error) { return 0, errors.New("the disk fails") }
