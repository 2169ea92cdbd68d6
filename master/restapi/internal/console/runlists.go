package console

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"saltern/master/value"
)

const (
	maxLists     = 32               // users whose lists of functions are kept
	maxFunctions = 4000             // functions in a list
	listsFor     = 30 * time.Minute // how long a list is kept
	maxFiles     = 500              // state files that the form offers
)

// functionList is the functions that a minion has named.
type functionList struct {
	names  []offer
	minion string
	at     time.Time
}

// functionLists keeps the last list of functions of each user: a user sees only what a minion has
// told to him. The zero value is empty. It may be used concurrently.
type functionLists struct {
	mu   sync.Mutex
	list map[string]functionList
}

func (l *functionLists) get(user string, now time.Time) (functionList, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	found, ok := l.list[user]
	return found, ok && now.Sub(found.at).Abs() < listsFor
}

// put keeps a list. If there are maxLists, it drops the oldest one.
func (l *functionLists) put(user string, list functionList) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.list == nil {
		l.list = map[string]functionList{}
	}

	delete(l.list, user)
	for len(l.list) >= maxLists {
		oldest := ""
		for name, other := range l.list {
			if oldest == "" || other.at.Before(l.list[oldest].at) {
				oldest = name
			}
		}
		delete(l.list, oldest)
	}

	l.list[user] = list
}

func (v *visit) listKey() string { return v.login.System + "\x00" + v.login.User }

// askFunctions asks one minion of the target for its functions, and keeps the list for the user.
func (c *Console) askFunctions(ctx context.Context, v *visit, ids []string) error {
	got, err := v.runCommand(ctx, "local", "sys.list_functions", "tgt", value.List(ids[:1]), "tgt_type", "list",
		"timeout", int64(10))
	if r, ok := errors.AsType[*Refusal](err); ok && r.Code == http.StatusUnauthorized {
		return &Refusal{r.Code,
			"The list comes from a minion, by sys.list_functions, which external_auth does not permit you there."}
	}
	if err != nil {
		return err
	}

	m, _ := got.(*value.Map)
	list := functionList{minion: briefName(ids[0]), at: c.cfg.Now()}
	for _, name := range m.Texts(ids[0]) {
		if len(list.names) == maxFunctions {
			break
		}
		if len(name) <= 100 && strings.Contains(name, ".") {
			list.names = append(list.names, offer{Name: briefName(name)})
		}
	}

	if len(list.names) == 0 {
		return &Refusal{http.StatusBadGateway, "The minion " + list.minion + " did not name its functions: is it connected?"}
	}

	c.lists.put(v.listKey(), list)
	return nil
}

// fillOffers sets what the form offers for its fields.
func (d *runPage) fillOffers(c *Console, ctx context.Context, v *visit) error {
	d.MaySave = v.mayChangeJobs()
	switch d.Kind {
	case kindMinions:
		d.Functions = usualFunctions()
		if own, ok := c.lists.get(v.listKey(), c.cfg.Now()); ok {
			d.Functions, d.Source = own.names, own.minion
		}
	case kindRunner:
		d.Functions = v.permitted("runner_async", runnersToRun())
	case kindWheel:
		d.Functions = v.permitted("wheel", wheelToRun())
	}

	if (d.Kind != kindMinions && d.Kind != kindOrchestration) || !v.mayCall("runner", "files.list") {
		return nil
	}

	got, err := v.runCommand(ctx, "runner", "files.list", "saltenv", "base", "prefix", folderOf(d.SLS))
	if r, ok := errors.AsType[*Refusal](err); ok && r.Code != http.StatusServiceUnavailable {
		return nil // the list is a help only
	}
	if err != nil {
		return err
	}

	m, _ := got.(*value.Map)
	d.Files = stateFiles(folderOf(d.SLS), m.Texts("dirs"), m.Texts("files"))
	return nil
}

// folderOf returns the folder of the state file that stands in a form, as "web/nginx" for
// "web.nginx.conf".
func folderOf(sls string) string {
	at := strings.LastIndexByte(sls, '.')
	if at < 0 || strings.ContainsAny(sls, "/, ") {
		return ""
	}
	return strings.ReplaceAll(sls[:at], ".", "/")
}

// stateFiles returns the names by which functions call the state files in a folder. Of its folders
// only their names are known: a folder is a state file if it has an init.sls.
func stateFiles(folder string, dirs, files []string) (names []string) {
	prefix := ""
	if folder != "" {
		prefix = strings.ReplaceAll(folder, "/", ".") + "."
	}

	for _, file := range files {
		name, ok := strings.CutSuffix(file, ".sls")
		if ok && name != "top" && name != "init" && !strings.Contains(name, ".") {
			names = append(names, briefName(prefix+name))
		}
	}

	for _, dir := range dirs {
		if !strings.HasPrefix(dir, "_") && !strings.Contains(dir, ".") {
			names = append(names, briefName(prefix+dir))
		}
	}

	slices.Sort(names)
	return names[:min(len(names), maxFiles)]
}
