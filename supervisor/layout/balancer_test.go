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
