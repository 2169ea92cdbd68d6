package conf

import (
	"bytes"
	"cmp"
	"net"
	"net/netip"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"strings"

	"saltern/master/value"
)

// masterID returns the id of a master whose configuration sets none (salt.config.get_id): the
// cached minion_id, or else a name of this host. The second result reports whether the returned id
// is an IP address.
func (l *Loader) masterID(opts *value.Map, rootDir string) (string, bool) {
	if v, ok := opts.Get("minion_id_caching"); !ok || v == true {
		if b, err := readRegular(filepath.Join(rootDir, "etc/salt/minion_id")); err == nil {
			line, _, _ := bytes.Cut(b, []byte("\n"))
			name := strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(string(line)), "\ufeff"))
			if name != "" && name != "localhost" {
				return name, false
			}
		}
	}

	id := l.hostID()
	if opts.Bool("minion_id_lowercase") {
		id = strings.ToLower(id)
	}

	switch d, _ := opts.Get("minion_id_remove_domain"); d := d.(type) {
	case bool:
		if d {
			id, _, _ = strings.Cut(id, ".")
		}
	case string:
		if d != "" && strings.HasSuffix(strings.ToUpper(id), "."+strings.ToUpper(d)) {
			id = id[:len(id)-len(d)-1]
		}
	}

	a, err := netip.ParseAddr(id)
	return id, err == nil && a.Is4()
}

// local matches names of hosts and addresses that many hosts have, so that they do not identify a
// host (salt.utils.network._generate_minion_id).
var local = regexp.MustCompile(`^(localhost|ip6-|ipv6-|127\.\d|0\.0\.0\.0|::1|fe00::|fe02::|1.0.0.*.ip6.arpa)`)

// hostID returns the first of the following that the host has: its full name from the hosts file,
// its name, its first IPv4 address that is not a loopback. If the host has none of them, hostID
// returns "localhost".
func (l *Loader) hostID() string {
	host, err := l.hostname()
	if err == nil && host != "" {
		if full := l.fullName(host); full != "" && !local.MatchString(full) {
			return full
		}
		if !local.MatchString(host) {
			return host
		}
	}

	for _, a := range l.addresses() {
		if a.Is4() && !a.IsLoopback() {
			return a.String()
		}
	}

	return "localhost"
}

// fullName looks up a host name in the hosts file. It returns the first name in the host's line
// that contains a domain, or "".
func (l *Loader) fullName(host string) string {
	if strings.Contains(host, ".") {
		return host
	}

	path := l.HostsFile
	path = cmp.Or(path, "/etc/hosts")
	b, err := readRegular(path)
	if err != nil {
		return ""
	}

	for line := range strings.Lines(string(b)) {
		line, _, _ = strings.Cut(line, "#")
		f := strings.Fields(line)
		found := false
		for i := 1; i < len(f); i++ {
			found = found || f[i] == host
		}

		if !found {
			continue
		}

		for _, n := range f[1:] {
			if strings.Contains(n, ".") {
				return n
			}
		}

		return ""
	}

	return ""
}

// defaultUser returns the default of the option user: the account under which the process runs.
func (l *Loader) defaultUser() string {
	if l.User != "" {
		return l.User
	}
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return "root"
}

func (l *Loader) hostname() (string, error) {
	if l.Hostname != nil {
		return l.Hostname()
	}
	return os.Hostname()
}

func (l *Loader) addresses() []netip.Addr {
	if l.Addresses != nil {
		return l.Addresses()
	}

	list, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}

	var out []netip.Addr
	for _, a := range list {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			out = append(out, p.Addr().Unmap())
		}
	}

	return out
}
