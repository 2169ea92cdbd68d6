package audit

import (
	"path/filepath"
	"strings"

	"saltern/internal/ratelimit"
)

// shelf is a kind of records that has its own files and its own bound: records on one shelf never
// push out records on another.
type shelf struct {
	name string
	// part is the size at which a file ends and the next begins. size bounds all files together.
	part, size int64
	// ofUser is the rate of each limited user.
	ofUser ratelimit.Rate
}

// The names of the shelves, and of their files.
const (
	// actsShelf holds acts that change keys, tokens, nodes, secrets and settings.
	actsShelf = "acts"
	// jobsShelf holds jobs and runners of actors with all rights.
	jobsShelf = "jobs"
	// usersShelf holds log-ins, and jobs and calls of limited users.
	usersShelf = "users"
	// refusedShelf holds refusals of requests of limited users.
	refusedShelf = "refused"
	// strangersShelf holds records that anybody can cause.
	strangersShelf = "strangers"
	// headsShelf holds the heads of other nodes' chains, see heads.go.
	headsShelf = "heads"
)

const mib = 1 << 20

// shelves returns all shelves.
func shelves() []shelf {
	return []shelf{
		{
			name:   actsShelf,
			part:   8 * mib,
			size:   128 * mib,
			ofUser: ratelimit.Rate{Burst: 500, PerSecond: 0.1},
		},
		{
			name:   jobsShelf,
			part:   4 * mib,
			size:   32 * mib,
			ofUser: ratelimit.Rate{Burst: 500, PerSecond: 0.1}, // never applies: limited users have their own shelf
		},
		{
			name:   usersShelf,
			part:   4 * mib,
			size:   64 * mib,
			ofUser: ratelimit.Rate{Burst: 2000, PerSecond: 0.5},
		},
		{
			name:   refusedShelf,
			part:   2 * mib,
			size:   16 * mib,
			ofUser: ratelimit.Rate{Burst: 100, PerSecond: 0.02},
		},
		{
			name: strangersShelf,
			part: 2 * mib,
			size: 16 * mib,
		},
		{
			name: headsShelf,
			part: 2 * mib,
			size: 16 * mib,
		},
	}
}

// largestPart is the size of the largest file of any shelf. It bounds how much of one file is read.
const largestPart = 8 * mib

// shelfNamed returns the shelf with the name, or the zero shelf if there is none.
func shelfNamed(name string) shelf {
	for _, s := range shelves() {
		if s.name == name {
			return s
		}
	}
	return shelf{}
}

// shelfOf returns the name of the shelf to which a record belongs.
func shelfOf(r Record) string {
	switch {
	case r.Stranger:
		return strangersShelf
	case r.Action == headsAction:
		return headsShelf
	case r.Limited && r.Result == Refused:
		return refusedShelf
	case r.Action == "login", r.Action == "token.delete":
		return usersShelf // also for logins of administrators: the shelf limits the rate of each user
	case r.Limited && !administers(r.Action):
		return usersShelf
	case r.Action == "job.publish", r.Action == "runner.call":
		return jobsShelf
	}

	return actsShelf
}

// hasRate reports whether the actor of a record is rate-limited.
func hasRate(r Record) bool {
	return r.Limited || shelfOf(r) == usersShelf
}

// administers reports whether an action belongs to the acts of administrators, even if a limited
// user may do it.
func administers(action string) bool {
	area, _, _ := strings.Cut(action, ".")
	switch area {
	case "key", "token", "node", "secret", "cluster", "service", "audit":
		return true
	}
	return false
}

// booksOf returns the books of all shelves in a folder.
func booksOf(dir string) (out []book) {
	for _, s := range shelves() {
		out = append(out, book{dir: dir, shelf: s})
	}
	return out
}

func (b book) current() string { return filepath.Join(b.dir, b.name+".jsonl") }
