package acl

import (
	"testing"

	"saltern/master/pattern"
	"saltern/master/value"
)

func resolve(compound string) ([]string, error) {
	var out []string
	for _, id := range []string{"web1", "web2", "db1"} {
		if pattern.Glob(compound, id) {
			out = append(out, id)
		}
	}
	return out, nil
}

func l(v ...any) []any { return v }

func TestPublish(t *testing.T) {
	m := value.NewMap
	kw := m("__kwarg__", true, "name", "nginx")
	tests := []struct {
		name    string
		perms   []any
		funs    []string
		args    []any
		minions []string
		want    bool
	}{
		{"nothing granted", nil, []string{"test.ping"}, l(l()), []string{"web1"}, false},
		{"by name", l("test.ping"), []string{"test.ping"}, l(l()), []string{"web1"}, true},
		{"beginning counts", l("test"), []string{"test.ping"}, l(l()), []string{"web1"}, true},
		{"middle does not", l("ping"), []string{"test.ping"}, l(l()), []string{"web1"}, false},
		{"all", l(".*"), []string{"cmd.run"}, l(l("id")), []string{"db1"}, true},
		{"on web only", l(m("web*", l("test.*"))), []string{"test.ping"}, l(l()), []string{"web1", "web2"}, true},
		{"reaches beyond web", l(m("web*", l("test.*"))), []string{"test.ping"}, l(l()),
			[]string{"web1", "db1"}, false},
		{"other function on web", l(m("web*", l("test.*"))), []string{"cmd.run"}, l(l()), []string{"web1"}, false},
		{"empty target (CVE-2022-22941)", l(m("", l("test.*"))), []string{"test.ping"}, l(l()), nil, false},
		{"no minions (CVE-2022-22941)", l(m("web*", l("test.*"))), []string{"test.ping"}, l(l()), nil, false},
		{"runner is no target", l(m("@runner", l(".*"))), []string{"test.ping"}, l(l()), []string{"web1"}, false},
		{"two keys in an entry", l(m("web*", l(".*"), "db*", l(".*"))), []string{"test.ping"}, l(l()),
			[]string{"web1"}, false},
		{"argument fits", l(m("*", l(m("pkg.install", m("args", l("nginx")))))), []string{"pkg.install"},
			l(l("nginx")), []string{"db1"}, true},
		{"argument does not", l(m("*", l(m("pkg.install", m("args", l("nginx")))))), []string{"pkg.install"},
			l(l("evil")), []string{"db1"}, false},
		{"argument is missing", l(m("*", l(m("pkg.install", m("args", l("nginx")))))),
			[]string{"pkg.install"}, l(l()), []string{"db1"}, false},
		{"named argument fits", l(m("*", l(m("pkg.install", m("kwargs", m("name", "nginx")))))),
			[]string{"pkg.install"}, l(l(kw)), []string{"db1"}, true},
		{"named argument is missing", l(m("*", l(m("pkg.install", m("kwargs", m("version", "1")))))),
			[]string{"pkg.install"}, l(l(kw)), []string{"db1"}, false},
		{"any value", l(m("*", l(m("pkg.install", m("args", l(nil)))))), []string{"pkg.install"},
			l(l(int64(5))), []string{"db1"}, true},
		{"one of two functions", l("test.*"), []string{"test.ping", "cmd.run"}, l(l(), l()), []string{"db1"}, false},
		{"both functions", l("test.*", "cmd.*"), []string{"test.ping", "cmd.run"}, l(l(), l()), []string{"db1"}, true},
		{"find_job always", nil, []string{"saltutil.find_job"}, l(l()), []string{"db1"}, true},
		{"broken expression", l("("), []string{"test.ping"}, l(l()), []string{"db1"}, false},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := Publish(tt.perms, Request{Funs: tt.funs, Args: tt.args, Minions: tt.minions}, resolve,
				"saltutil.find_job")
			if got != tt.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestSpecial(t *testing.T) {
	m := value.NewMap
	for _, tt := range []struct {
		perms     []any
		form, fun string
		want      bool
	}{
		{l("@runner"), "runner", "jobs.list_jobs", true}, {l("@runners"), "runner", "jobs.list_jobs", true}, {l("@jobs"), "runner", "jobs.list_jobs", true},
		{l("@wheel"), "runner", "jobs.list_jobs", false}, {l(".*"), "runner", "jobs.list_jobs", false}, {nil, "wheel", "key.accept", false},
		{l("@wheel"), "wheel", "key.accept", true}, {l("@wheel"), "wheel", "key", false}, {l("@wheel"), "wheel", "key.x.y", false},
		{l(m("@jobs", l("list_.*"))), "runner", "jobs.list_jobs", true}, {l(m("@jobs", l("list_.*"))), "runner", "jobs.active", false},
		{l(m("@runner", l("manage.*"))), "runner", "manage.up", true}, {l(m("@runner", l("manage.*"))), "runner", "jobs.active", false},
		{l(""), "runner", "jobs.active", false},
		{l(m("@jobs", l("active"))), "runner", "jobs.activex", false}, {l(m("@runner", l("jobs.active"))), "runner", "jobs.activex", false},
	} {
		if got := Special(tt.perms, tt.form, tt.fun, nil, m()); got != tt.want {
			t.Errorf("%v, %s %s: %v", tt.perms, tt.form, tt.fun, got)
		}
	}
}

func TestSpecialArguments(t *testing.T) {
	m := value.NewMap
	onlyWeb := l(m("@wheel",
		l(m("key.accept", m("args", l("web.*"))), m("key.reject", m("kwargs", m("match", "web.*"))))))
	for _, tt := range []struct {
		name  string
		fun   string
		args  []any
		named *value.Map
		want  bool
	}{
		{"fits", "key.accept", l("web1"), nil, true},
		{"other value", "key.accept", l("db1"), nil, false},
		{"none", "key.accept", nil, nil, false},
		{"named, not in its place", "key.accept", nil, m("match", "web1"), false},
		{"named fits", "key.reject", nil, m("match", "web1"), true},
		{"named, other value", "key.reject", nil, m("match", "db1"), false},
		{"a positional map does not pass for named ones", "key.reject",
			l("db1", m("__kwarg__", true, "match", "web1")), nil, false},
		{"nor beside others", "key.reject", l("db1", m("__kwarg__", true, "match", "web1")), m("x", "y"), false},
	} {
		if got := Special(onlyWeb, "wheel", tt.fun, tt.args, tt.named); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

func TestFillAuthList(t *testing.T) {
	section := value.NewMap("ann", l("a"), "ops%", l("o"), "*", l("all"), "b.*", l("re"), "john.doe", l("john"))
	for _, tt := range []struct {
		name       string
		groups     []string
		permissive bool
		want       []any
	}{
		{"ann", nil, false, l("a")}, {"ann", []string{"ops"}, false, l("a", "o")}, {"eve", nil, false, l("all")}, {"eve", []string{"ops"}, false, l("o", "all")},
		{"bob", nil, false, l("all")}, {"ann", nil, true, l("a", "all")}, {"johnXdoe", nil, false, l("all")}, {"john.doe", nil, false, l("john")},
		{".*", nil, false, l("all")}, {"a*", nil, false, l("all")}, {"*", nil, false, l("all")}, {"ops%", nil, false, l("all")},
	} {
		got := FillAuthList(section, tt.name, tt.groups, tt.permissive)
		if len(got) != len(tt.want) {
			t.Errorf("%s %v: %v, want %v", tt.name, tt.groups, got, tt.want)
			continue
		}

		for i := range got {
			if got[i] != tt.want[i] {
				t.Errorf("%s %v: %v, want %v", tt.name, tt.groups, got, tt.want)
			}
		}
	}
}

func TestPeer(t *testing.T) {
	opt := value.NewMap("web.*", l("network.*"), ".*", l("test.ping"), "db", "not a list")
	if got := Peer(opt, "web1"); len(got) != 2 {
		t.Errorf("web1 is granted %v", got)
	}
	if got := Peer(opt, "db1"); len(got) != 1 || !Run(got, "test.ping") || Run(got, "test.pingx") ||
		Run(got, "manage.up") {
		t.Errorf("db1 is granted %v", got)
	}
	if Peer(nil, "web1") != nil || Run(nil, "test.ping") {
		t.Error("without the option nothing is granted")
	}
}

func TestBlacklist(t *testing.T) {
	b := Blacklist{Users: []string{"root", "sudo_.*"}, Modules: []string{"cmd.*"}}
	for user, want := range map[string]bool{"root": true, "sudo_x": true, "ann": false} {
		if got := b.Refuses(user, []string{"test.ping"}); got != want {
			t.Errorf("%s: %v", user, got)
		}
	}
	if !b.Refuses("ann", []string{"test.ping", "cmd.run"}) {
		t.Error("a function on the list is let through")
	}
}
