package observe

import (
	"strings"
	"testing"
	"time"

	"saltern/supervisor/settings"
	"saltern/supervisor/status"
)

// The address is none of the node's own in the status, whoever has it, and the
// service is not shown where there is no address.
func TestStatusOfVirtualAddress(t *testing.T) {
	cfg := settings.Default("n1")
	for _, v := range []*Virtual{nil, {Address: "10.0.0.20"}} {
		f := healthyFacts(&cfg)
		f.services = append(f.services, f.services[1])
		f.services[2].Name = status.VirtualService
		f.Virtual = v
		f.Blocked[status.VirtualService] = []status.Finding{{Code: status.VirtualUnable, Subject: "10.0.0.20"}}

		if found := findings(&cfg, f); (len(found) > 0) != (v != nil) {
			t.Errorf("%+v", found)
		}

		o := New(Config{Settings: &cfg, Board: status.NewBoard(), Now: func() time.Time { return now }})
		cfg.Front.Addresses = []string{"10.0.0.1", "10.0.0.20"}
		d := o.compose(f)
		if shown := len(d.Services) == 3; shown != (v != nil) {
			t.Errorf("%+v", d.Services)
		}

		if own := strings.Join(d.Front.Addresses, " "); (v != nil) != (own == "10.0.0.1") ||
			(v != nil) != (d.Virtual != nil) {
			t.Errorf("%s %+v", own, d.Virtual)
		}
	}
}
