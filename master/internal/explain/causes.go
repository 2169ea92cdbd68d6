package explain

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"saltern/internal/control"
	"saltern/internal/printable"
	"saltern/master/keys"
)

// answers is the code of the cause of a minion that answers.
const answers = "answers"

// withoutAsking is the next step if the minion was not asked.
const withoutAsking = "applianced explain %s without --no-ask asks it"

const (
	// silentFor is how long a minion has been silent before its clock, its version or its network are
	// suspected, rather than a restart.
	silentFor = 2 * time.Minute
	// slowAfter is how long an answer may take before that is worth a remark.
	slowAfter = 3 * time.Second
)

// causesOf returns why a minion does not answer, the most likely cause first, and then what else matters.
func causesOf(f *facts) (all []control.Cause) {
	c := causes{facts: f}
	switch {
	case keys.ValidID(f.id) != nil:
		c.add("invalid id", "no minion can have this id", "check how it is spelled: salt-key -L")
	case f.manager != "" && !f.hasKey:
		c.add("resource", f.manager+" manages a resource with this id; the resource has no connection of its own",
			"applianced explain "+f.manager)
	case f.mayBeBelow() && f.answer.answers > 0:
		c.ofAnswer()
		c.add("below a syndic", "it is a minion of a lower master, which has its key, its connection and its pillar",
			"ask there; applianced explain of the syndic tells whether that is connected")
	case !f.accepted():
		c.ofKey()
	default:
		c.ofAccepted()
	}
	c.ofMaster()
	return c.list
}

// causes collects what causesOf returns.
type causes struct {
	*facts
	list []control.Cause
}

func (c *causes) add(code, text, next string) {
	c.list = append(c.list, control.Cause{Code: code, Text: text, Next: next})
}

// ofKey adds why a minion without an accepted key does not answer.
func (c *causes) ofKey() {
	switch {
	case c.hasKey && c.key.State == keys.Pending:
		c.add("key not accepted", "its key waits to be accepted", "compare the fingerprint (salt-call --local key.finger there), then: salt-key -a "+c.id)
		if c.hasDenied {
			c.add("two keys", "two machines have offered keys under this id", "give one of them another id")
		}
	case c.hasKey && c.key.State == keys.Rejected:
		c.add("key rejected", "its key was rejected", "to let it in: salt-key -d "+c.id+", then restart the minion and accept the key")
	case c.hasDenied:
		c.add("key denied", "a key under this id was denied, and there is no other one",
			"salt-key -d "+c.id+", then restart the minion and accept the key")
	default:
		c.ofUnknown()
	}
	c.ofSignIn()
}

// ofUnknown adds that there is no such minion.
func (c *causes) ofUnknown() {
	text := "there is no such minion: no key has this id"
	next := "check the id (salt-call --local grains.get id there), and whether its option master names this cluster"
	if len(c.near) > 0 {
		text += "; similar ones: " + strings.Join(c.near, ", ")
	}
	if c.orders {
		next = "a lower master may have it: ask there"
		if c.answer.asked {
			text += "; none below a syndic answered within " + askFor.String()
		}
	}
	c.add("no such minion", text, next)
}

// ofSignIn adds why the last sign-in was not taken.
func (c *causes) ofSignIn() {
	if !c.hasSignIn || c.signIn.Refusal == "" {
		c.ofRefusal()
		return
	}

	from := fmt.Sprintf("its last sign-in, from %s, ", c.signIn.From)
	switch why := c.signIn.Refusal; {
	case why == "full":
		c.add("too many minions", from+"was sent away: max_minions are connected", "raise max_minions, or add a node")
	case why == "bad sig algo":
		c.add("signing algorithm", from+"names a signing algorithm that this master does not take",
			"remove signing_algorithm from the minion's configuration, or upgrade the minion")
	case strings.HasPrefix(why, "master is busy"):
		c.add("master busy", from+"was put off: the master was busy", "it tries again by itself; applianced status shows what keeps the master busy")
	case strings.HasPrefix(why, "the master cannot store the key"):
		c.add("keys cannot be stored", from+"was put off: "+why, "make room on the disk of the keys: applianced status")
	case why == "bad load":
		c.add("malformed sign-in", from+"was malformed", "look at the log of the minion: its Salt may be damaged, or something else speaks to port 4506")
	default:
		c.add("sign-in refused", from+"was refused: "+why, "look at the log of the master: applianced logs master")
	}
}

// ofRefusal adds why the last request from the minion's address was refused.
func (c *causes) ofRefusal() {
	if !c.hasRefusal() {
		return
	}
	why := printable.Clip(printable.Line(c.refusal.Why), 300)
	text := fmt.Sprintf("%d requests from its address were refused, the last one %s: %s", c.refusal.Count,
		ago(c.now, c.refusal.At), why)
	switch {
	case strings.Contains(why, "request_server_ttl"):
		c.add("clock", text, "set the clock of the minion: timedatectl there")
	case strings.HasPrefix(why, "protocol version"):
		c.add("version too old", text, "upgrade the minion to 3006.23, 3007.13 or later, or lower minimum_auth_version meanwhile")
	case strings.Contains(why, "token of"):
		c.add("wrong token", text, "another machine may use a copy of its disk: give one of them a new key and another id")
	case strings.Contains(why, "opening the request"):
		c.add("old session", text, "it signs in again by itself; if this stays, restart salt-minion there")
	default:
		c.add("requests refused", text, "look at the log of the master: applianced logs master")
	}
}

// ofAccepted adds why a minion with an accepted key does not answer.
func (c *causes) ofAccepted() {
	otherKey := c.hasDenied && c.signedInLast()
	switch {
	case c.answer.answers > 0:
		c.ofAnswer()
	case otherKey && !c.connected():
		c.add("another key", "a machine offers another key under this id: it was installed anew, or has the same name",
			"if it is the right machine: salt-key -d "+c.id+", then accept its new key; else give it another id")
	case !c.connected():
		c.ofAbsent()
	case c.syndic:
		c.add("syndic", "it is a syndic, and connected: it passes jobs on to its master, and answers none as a minion",
			"applianced explain of a minion below it tells whether that answers")
	default:
		c.ofDeaf()
	}

	if c.hasDenied && !(otherKey && !c.connected()) {
		c.add("denied key", "another machine has offered a key under this id, and was denied", "salt-key -l denied; give that machine another id, then: salt-key -d "+c.id)
	}
	if c.pillarFault != nil {
		c.add("pillar", "its last pillar has faults", "salt-run pillar.show_pillar "+c.id+" shows them as _errors; the log of the master has the cause")
	}
}

// ofAnswer adds what the answer of the minion tells.
func (c *causes) ofAnswer() {
	a := &c.answer
	switch {
	case a.answers > 1:
		c.add("two minions", fmt.Sprintf("%d minions answered under this id", a.answers),
			"two machines, or two processes of one, have this id and key: give one another id and a new key, or end the second salt-minion")
	case inBlackout(a.text):
		c.add("blackout", "it answers, and refuses all functions: minion_blackout is set in its pillar or grains", "remove minion_blackout, then: salt "+c.id+" saltutil.refresh_pillar")
	case a.text != "":
		c.add("refuses", "it answers, but not as asked: "+a.text, "look at disable_modules, whitelist_modules and the log of the minion")
	case len(a.running) > 0:
		c.add("at work", "it answers, and runs "+namesOf(a.running), "wait, or: salt "+c.id+" saltutil.term_job JID")
	default:
		c.add(answers, fmt.Sprintf("it answers (within %s)", a.took.Round(time.Millisecond)), "")
	}
	if a.took > slowAfter {
		c.add("slow", fmt.Sprintf("it took %s to answer", a.took.Round(100*time.Millisecond)), "look at the load of the machine; or raise timeout")
	}
}

func namesOf(running []control.ExplainedJob) string {
	var names []string
	for _, job := range running {
		names = append(names, fmt.Sprintf("%s (job %s)", job.Function, job.JID))
	}
	return strings.Join(names, ", ")
}

// ofAbsent adds why a minion is not connected.
func (c *causes) ofAbsent() {
	if len(c.places.Unasked) > 0 || c.unplaced != nil {
		c.ofUnasked()
	}

	seen := c.seen()
	signedIn := c.signedInLast()
	switch {
	case signedIn && c.signIn.Refusal != "":
		c.ofSignIn()
	case c.hasRefusal():
		c.ofRefusal()
	case signedIn && c.now.Sub(c.signIn.At) < silentFor:
		c.add("just signed in", "it signed in "+ago(c.now, c.signIn.At)+" and will be connected in a moment", "ask again")
	case signedIn:
		c.add("goes no further", "it signed in "+ago(c.now, c.signIn.At)+", and then neither asked nor listened",
			"it may hold another key of the master: delete minion_master.pub there and restart salt-minion; or port 4505 is closed")
	case !c.asked.IsZero() && c.now.Sub(c.asked) < silentFor:
		c.add("does not listen", "its requests arrive (the last one "+ago(c.now, c.asked)+"), but it does not listen for jobs",
			"it has just connected, or salt-call runs there without salt-minion, or port 4505 is closed between them")
	case seen.IsZero():
		c.add("never seen", "its key is accepted, but no master has heard from it since its records begin",
			"start salt-minion there; ports 4505 and 4506 must be open, and its option master must name this cluster")
	default:
		c.add("not connected", "it is not connected"+c.whereAsked()+", and was last heard "+ago(c.now, seen),
			"look at the machine: is it up, does salt-minion run, do ports 4505 and 4506 of this cluster answer there?")
	}
}

// whereAsked names the limit of what is known: some nodes may not have been asked.
func (c *causes) whereAsked() string {
	if len(c.places.Unasked) > 0 || c.unplaced != nil {
		return " to the nodes that were asked"
	}
	return ""
}

// ofUnasked adds that the minion may be connected to a node that did not answer.
func (c *causes) ofUnasked() {
	if len(c.places.Unasked) == 0 {
		c.add("other nodes unknown", "the other nodes could not be asked: "+c.unplaced.Error(), "ask on the other nodes, too")
		return
	}
	names := slices.Sorted(maps.Keys(c.places.Unasked))
	c.add("node not asked", "it may be connected to a node that did not answer: "+strings.Join(names, ", "),
		"applianced nodes; then ask again, or on that node")
}

// ofDeaf adds why a minion that is connected does not answer.
func (c *causes) ofDeaf() {
	where := "it is connected"
	if c.places.Node != "" {
		where += " to " + c.places.Node
	}
	if !c.here && !c.places.Connected {
		where = "it answered a job " + ago(c.now, c.listened)
	}

	switch {
	case c.answer.failed != nil:
		c.add(control.NotAsked, where+"; the question to it could not be sent: "+c.answer.failed.Error(), "applianced status shows what is wrong with the master")
	case c.hasRefusal():
		c.ofRefusal()
	case c.answer.asked:
		c.add("deaf", where+", was sent a question, and nothing came back within "+askFor.String()+c.openJobs(),
			"restart salt-minion there; if it comes back, look at its log, its load and its disk")
	case len(c.unanswered) > 1:
		c.add("deaf", where+c.openJobs(), fmt.Sprintf(withoutAsking, c.id))
	case len(c.unanswered) == 1:
		c.add("at work or deaf", where+c.openJobs(), fmt.Sprintf(withoutAsking, c.id))
	default:
		c.add(control.NotAsked, where+", and no job that is known lacks its answer; whether it answers now was not asked",
			fmt.Sprintf(withoutAsking, c.id))
	}
}

func (c *causes) openJobs() string {
	if len(c.unanswered) == 0 {
		return ""
	}
	first := c.unanswered[0]
	return fmt.Sprintf("; it has not answered %d of the last jobs, since %s (%s, job %s)", len(c.unanswered),
		ago(c.now, first.Start), first.Function, first.JID)
}

// ofMaster adds the faults of the master that keep minions from being answered.
func (c *causes) ofMaster() {
	for _, p := range c.problems {
		c.add("master: "+string(p.What), printable.Clip(printable.Line(p.Text), 300), "applianced status")
	}
}

// ago returns how long ago a time was, as text.
func ago(now, at time.Time) string {
	d := max(0, now.Sub(at))
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s ago", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min ago", int(d.Minutes()))
	case d < 47*time.Hour+30*time.Minute: // rounded, and whole days from here on, as on the pages of the console
		return fmt.Sprintf("%.0f h ago", d.Hours())
	}
	return fmt.Sprintf("%d days ago", max(2, d/(24*time.Hour)))
}
