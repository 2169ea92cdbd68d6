//go:build nspawn

package image

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"saltern/test/lab"
)

// servesAPI switches Salt's API on by appliance.yaml on two of three nodes: a log-in is
// answered by the addresses of both and by the virtual one, and only the nodes reach the
// port where salt-api waits for the load balancers.
func servesAPI(t *testing.T, n *network, all []*machine, virtual string) {
	t.Helper()
	all[0].put(t, "/srv/cluster/etc/master.d/api.conf",
		"netapi_enable_clients: [local]\nsharedsecret: on-the-image\nexternal_auth: {sharedsecret: {alice: [test.ping]}}\n")
	all[0].run(t, "applianced", "config", "apply", "--yes")
	with := all[:2]
	for _, m := range with {
		m.run(t, "sh", "-c", "printf 'api: {enabled: true}\n' >>/etc/saltern/appliance.yaml && applianced reload")
	}

	ns, _ := n.namespace(t, 93)
	ask := func(address string) (string, error) {
		out, err := exec.Command("ip", "netns", "exec", ns, "curl", "-sk", "--max-time", "20", "-H", "Accept: application/json", "-d", "username=alice", "-d", "password=on-the-image",
			"-d", "eauth=sharedsecret", "https://"+address+":8000/login").CombinedOutput()
		return string(out), err
	}

	for _, m := range with {
		lab.Eventually(t, 180*time.Second, "a log-in by "+m.Name, func() error {
			if out, err := ask(m.Address); err != nil || !strings.Contains(out, `"token"`) {
				status, _ := m.try("applianced", "status")
				return fmt.Errorf("%v: %s\n%s", err, out, status)
			}
			return nil
		})
	}

	if has := holder(t, all[0], all, virtual); has != all[2] {
		if out, err := ask(virtual); err != nil || !strings.Contains(out, `"token"`) {
			t.Errorf("by the virtual address: %v: %s", err, out)
		}
	}

	open := scan(t, ns, all[0].Address)
	for _, p := range open {
		if p == 14507 {
			t.Errorf("strangers reach port 14507; open: %v", open)
		}
	}

	all[0].wait(t, 60*time.Second, all[0].Name+", "+all[1].Name, "sh", "-c", "applianced status | grep API")
	for _, m := range with {
		if denied, _ := m.try("sh", "-c",
			"journalctl -b --no-pager | grep -i 'apparmor.*DENIED' | head -5"); denied != "" {
			t.Errorf("AppArmor denied:\n%s", denied)
		}
	}
}
