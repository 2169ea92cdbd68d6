package layout

import (
	"testing"

	"saltern/lbproxy"
)

// The load balancer must accept what is written for it.
func TestBalancerConfigIsAccepted(t *testing.T) {
	s := node(t, "front: {addresses: ['0.0.0.0', '::']}\n")
	b, err := BalancerConfig(s)
	if err != nil {
		t.Fatal(err)
	}
	c, err := lbproxy.ParseConfig(b)
	if err != nil {
		t.Fatalf("%v in:\n%s", err, b)
	}
	if len(c.Frontends) != 2 || len(c.Frontends[0].Bind) != 2 || c.Backends[0].PublishPort != 14505 || !c.Backends[0].ProxyV2 ||
		c.Admin.Socket != s.LBSocket() {
		t.Errorf("%+v", c)
	}
}

// TestFinding09Appliance: the load balancer of an appliance limits sources, by
// defaults that nothing in what is written for it turns off.
func TestFinding09Appliance(t *testing.T) {
	b, err := BalancerConfig(node(t, ""))
	if err != nil {
		t.Fatal(err)
	}
	c, err := lbproxy.ParseConfig(b)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range c.Frontends {
		if f.MaxPerSource < 0 || f.Rate < 0 {
			t.Errorf("frontend %s has no limits of a source", f.Name)
		}
	}
	if c.Health.Check != lbproxy.CheckPing || c.Connect.Handshake <= 0 || c.Connect.Unproven <= 0 {
		t.Errorf("%+v %+v", c.Health, c.Connect)
	}
}
