package nodeapi

import (
	"slices"
	"testing"

	"saltern/internal/audit"
	"saltern/supervisor/nodes"
)

// Who joins, who does not know the secret, and what a node says of itself is written
// down; members ask for it, and nobody else.
func TestAudit(t *testing.T) {
	c := startNode(t)
	id := identity(t)
	if _, err := Meet(within(t), id, c.ask("", "wrong-secret-of-some-length")); err == nil {
		t.Fatal("a wrong secret was taken")
	}

	if _, err := Meet(within(t), id, c.ask("", goodSecret)); err != nil { // a look is no act
		t.Fatal(err)
	}

	a := c.ask(c.key.Hash, goodSecret)
	a.Join = true
	if _, err := Meet(within(t), id, a); err != nil {
		t.Fatal(err)
	}

	cl := NewClient(id, c.address, c.id.Hash)
	defer cl.Close()
	if _, err := cl.SetState(within(t), nodes.Member); err != nil {
		t.Fatal(err)
	}

	p, err := cl.Audit(within(t), "n1", audit.Query{Last: 10})
	if err != nil {
		t.Fatal(err)
	}

	var got []string
	for _, r := range p.Records {
		if r.From != "127.0.0.1" || r.Node != "n1" {
			t.Errorf("%+v", r)
		}
		got = append(got, r.Action+" "+r.User+" "+string(r.Proof)+" "+string(r.Result))
	}

	if want := []string{"node.join UNKNOWN none refused", "node.join n2 secret ok",
		"node.ready n2 node ok"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}

	stranger := NewClient(identity(t), c.address, c.id.Hash)
	defer stranger.Close()
	if p, err := stranger.Audit(within(t), "n1", audit.Query{}); err == nil || len(p.Records) > 0 {
		t.Errorf("a stranger reads %+v", p)
	}
}

// A hostile node tells of itself only, within bounds, and nothing that a terminal obeys.
func TestAttack45OtherNodes(t *testing.T) {
	c := startNode(t)
	for range audit.MaxRecords + 10 {
		c.records = append(c.records, audit.Record{Node: "n9", Action: "a\x1b[2J\n", Result: audit.OK})
	}
	cl := NewClient(c.id, c.address, c.id.Hash)
	defer cl.Close()
	p, err := cl.Audit(within(t), "n1", audit.Query{Last: audit.MaxRecords + 10})
	if err != nil || len(p.Records) != audit.MaxRecords || !p.More {
		t.Fatalf("%d %v %v", len(p.Records), p.More, err)
	}
	if r := p.Records[0]; r.Node != "n1" || r.Action != "a" {
		t.Errorf("%+v", r)
	}
}
