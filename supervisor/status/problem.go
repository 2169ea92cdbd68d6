package status

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Severity is the effect of a problem on the service.
type Severity string

// Values of Severity.
const (
	Fatal   Severity = "fatal"   // minions cannot be served; the health becomes "not serving"
	Warning Severity = "warning" // a person must act; the health becomes "degraded"
	Notice  Severity = "notice"  // worth knowing; the health does not change
)

// Code identifies a kind of problem permanently. The hundreds name the area: 0 configuration, 1
// other nodes, 2 master, 3 load balancer, 4 storage, 5 security, 6 system.
type Code string

// The codes. The code of a removed kind of problem is never used again for another kind.
const (
	NotConfigured     Code = "SCA-001"
	ConfigWrong       Code = "SCA-002"
	SetupStopped      Code = "SCA-003"
	ResetStopped      Code = "SCA-004"
	SupervisorSilent  Code = "SCA-005"
	ConfigDiffers     Code = "SCA-006"
	NodeRemoved       Code = "SCA-101"
	NodeMasterDown    Code = "SCA-102"
	SecretStaged      Code = "SCA-103"
	NodeUnreachable   Code = "SCA-104"
	NodeNotServing    Code = "SCA-105"
	NodeAPIDown       Code = "SCA-106"
	VirtualNobody     Code = "SCA-107"
	VirtualTwice      Code = "SCA-108"
	MastersApart      Code = "SCA-109"
	ArbiterUnwell     Code = "SCA-110"
	RemovalHalf       Code = "SCA-111"
	KeyTwice          Code = "SCA-114"
	NotTheNode        Code = "SCA-115"
	MasterDown        Code = "SCA-201"
	MasterConfig      Code = "SCA-202"
	MasterSilent      Code = "SCA-203"
	KeyUnreadable     Code = "SCA-204"
	PortInUse         Code = "SCA-205"
	PillarErrors      Code = "SCA-206"
	ProgramMissing    Code = "SCA-207"
	ReturnsNotKept    Code = "SCA-208"
	MasterProblem     Code = "SCA-209"
	MasterUnreported  Code = "SCA-210"
	GitPillars        Code = "SCA-211"
	MasterLastGood    Code = "SCA-212"
	GitFiles          Code = "SCA-213"
	GitAway           Code = "SCA-214"
	GitLogin          Code = "SCA-215"
	GitHostKey        Code = "SCA-216"
	GitRefGone        Code = "SCA-217"
	GitSize           Code = "SCA-218"
	PythonPackages    Code = "SCA-219"
	APIDown           Code = "SCA-220"
	AuditLost         Code = "SCA-221"
	PillarsUnanswered Code = "SCA-232"
	ReactionsLost     Code = "SCA-233"
	PillarCheck       Code = "SCA-234"
	PostgresAway      Code = "SCA-235"
	PostgresLacks     Code = "SCA-236"
	APIFront          Code = "SCA-230"
	BackupLate        Code = "SCA-223"
	SystemOld         Code = "SCA-224"
	SystemFixed       Code = "SCA-225"
	SystemNewer       Code = "SCA-226"
	SystemUnasked     Code = "SCA-227"
	SystemFrozen      Code = "SCA-228"
	UpgradeStopped    Code = "SCA-240"
	UpgradeUnmade     Code = "SCA-241"
	UpgradeUnfinished Code = "SCA-242"
	UpgradeGaveUp     Code = "SCA-243"
	SavedUnreadable   Code = "SCA-244"
	BalancerDown      Code = "SCA-301"
	NoBackend         Code = "SCA-302"
	BalancerSilent    Code = "SCA-303"
	VirtualUnable     Code = "SCA-304"
	SourceLimited     Code = "SCA-305"
	StorageUnusable   Code = "SCA-401"
	DiskFull          Code = "SCA-402"
	DiskLow           Code = "SCA-403"
	VolumeAbsent      Code = "SCA-411"
	VolumeHangs       Code = "SCA-412"
	VolumeStopped     Code = "SCA-413"
	VolumeNoQuorum    Code = "SCA-414"
	StorageDaemon     Code = "SCA-415"
	VolumeFull        Code = "SCA-416"
	VolumeLow         Code = "SCA-417"
	BrickFull         Code = "SCA-418"
	BrickDown         Code = "SCA-419"
	SplitBrain        Code = "SCA-420"
	HealPending       Code = "SCA-421"
	HealStuck         Code = "SCA-422"
	StorageBlocked    Code = "SCA-423"
	StorageOpen       Code = "SCA-424"
	StorageRejected   Code = "SCA-425"
	StoragePeerAway   Code = "SCA-426"
	ClockSkew         Code = "SCA-427"
	MirrorBehind      Code = "SCA-428"
	CopyOld           Code = "SCA-429"
	CopyUndecided     Code = "SCA-430"
	CopyKept          Code = "SCA-431"
	DiskOld           Code = "SCA-432"
	InsecureOption    Code = "SCA-501"
	ChildrenAsRoot    Code = "SCA-502"
	SecretWeak        Code = "SCA-503"
	AccountMissing    Code = "SCA-504"
	MemoryUnbounded   Code = "SCA-505"
	NobodyCanLogIn    Code = "SCA-506"
	FirewallWrong     Code = "SCA-507"
	FirewallOwn       Code = "SCA-508"
	ProfileOff        Code = "SCA-509"
	SSHConfig         Code = "SCA-510"
	GuardsUnseen      Code = "SCA-511"
	ClockUnsynced     Code = "SCA-601"
	DescriptorsShort  Code = "SCA-602"
	SupervisorStopped Code = "SCA-603"
	AddressMissing    Code = "SCA-604"
	PortRefused       Code = "SCA-605"
	NetworkDown       Code = "SCA-606"
	TimeAway          Code = "SCA-607"
	JournalConfig     Code = "SCA-608"
)

// Kind describes all problems with one code. The manual prints the table of kinds.
type Kind struct {
	Code     Code
	Severity Severity
	// Title is a short sentence that describes the problem. Next says what to do. The problem's
	// subject replaces %s in Title and Next.
	Title string
	Next  string
	// Subject stands for the subject in the manual, such as NODE, so that its commands read as commands.
	Subject string
	// DependsOn lists the codes of causes: while a problem with such a code is shown, this problem
	// is hidden. A cause that concerns one node hides only problems of the same node.
	DependsOn []Code
	// Visible is how long the problem must last before it is shown, so that a flapping problem
	// stays hidden.
	Visible time.Duration
}

// Problem is one thing that is wrong now.
type Problem struct {
	Code      Code      `json:"code"`
	Severity  Severity  `json:"severity"`
	Title     string    `json:"title"`
	Cause     string    `json:"cause,omitempty"` // what was observed, with names and figures
	Next      string    `json:"next,omitempty"`
	Subject   string    `json:"subject,omitempty"` // what the problem concerns: a path, an address, a node
	Since     time.Time `json:"since"`
	DependsOn []Code    `json:"dependsOn,omitempty"`
	Hides     []Code    `json:"hides,omitempty"` // codes of consequences, which hold now and are not shown
}

// Finding is a problem that one observation has found.
type Finding struct {
	Code    Code
	Subject string
	Cause   string
}

// Board remembers since when each problem has existed, and decides which problems to show. It is
// not safe for concurrent use.
type Board struct {
	kinds map[Code]Kind
	since map[boardKey]time.Time
}

type boardKey struct {
	code    Code
	subject string
}

// maxProblems bounds how many problems are shown. Beyond that, the mildest are dropped.
const maxProblems = 50

// NewBoard returns an empty board.
func NewBoard() *Board {
	b := &Board{kinds: map[Code]Kind{}, since: map[boardKey]time.Time{}}
	for _, k := range Kinds() {
		b.kinds[k.Code] = k
	}
	return b
}

// Update takes all findings at the time now, and returns the problems to show, severe ones first.
// It omits the consequences of a cause that is shown. A finding that is missing from one update
// counts as ended.
func (b *Board) Update(now time.Time, found []Finding) []Problem {
	next := make(map[boardKey]time.Time, len(found))
	var held []Problem
	for _, f := range found {
		key := boardKey{f.Code, f.Subject}
		if _, twice := next[key]; twice {
			continue
		}

		since, ok := b.since[key]
		if !ok {
			since = now
		}

		next[key] = since
		k := b.kinds[f.Code]
		if now.Sub(since) < k.Visible {
			continue
		}

		held = append(held, Problem{
			Code:      f.Code,
			Severity:  k.Severity,
			Title:     withSubject(k.Title, f.Subject),
			Cause:     f.Cause,
			Next:      withSubject(k.Next, f.Subject),
			Subject:   f.Subject,
			Since:     since,
			DependsOn: k.DependsOn,
		})
	}

	b.since = next
	shown := hideConsequences(held)
	slices.SortStableFunc(shown, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(rankOf(a.Severity), rankOf(b.Severity)), cmp.Compare(a.Code, b.Code),
			cmp.Compare(a.Subject, b.Subject))
	})

	return shown[:min(len(shown), maxProblems)]
}

func hideConsequences(held []Problem) []Problem {
	type key struct {
		code Code
		node string
	}

	// The absence of one node does not explain problems of another node.
	of := func(c Code, subject string) key {
		if c != NodeUnreachable && c != NodeNotServing {
			subject = ""
		}
		return key{c, subject}
	}

	present := map[key]bool{}
	for _, p := range held {
		present[of(p.Code, p.Subject)] = true
	}

	hiddenBy := map[key][]Code{}
	shown := []Problem{}
	for _, p := range held {
		hidden := false
		for _, d := range p.DependsOn {
			if k := of(d, p.Subject); present[k] {
				hidden = true
				if !slices.Contains(hiddenBy[k], p.Code) {
					hiddenBy[k] = append(hiddenBy[k], p.Code)
				}
			}
		}

		if !hidden {
			shown = append(shown, p)
		}
	}

	for i := range shown {
		shown[i].Hides = hiddenBy[of(shown[i].Code, shown[i].Subject)]
	}

	return shown
}

// ofMaster reports whether a problem keeps only this node's own master from serving.
func ofMaster(p Problem) bool {
	return p.Severity == Fatal && slices.Contains(
		[]Code{MasterDown, MasterConfig, MasterSilent, ReturnsNotKept, KeyUnreadable, PortInUse, PortRefused,
			ProgramMissing, AccountMissing},
		p.Code)
}

// Serves reports whether minions can work with this node: the node answers, and no problem says
// that it cannot serve. Every place that calls a node ready or serving uses this method.
func (d Document) Serves() bool {
	return d.ServingSince != nil && (d.Health == Healthy || d.Health == Degraded)
}

// ServesItself reports whether minions can work with this node even without the masters of other
// nodes: its own master answers, and the shared volume is mounted here. A node keeps a new version
// of the system only if it serves itself with that version. Another node may restart only if this
// one serves itself.
func (d Document) ServesItself() bool {
	if !d.Serves() {
		return false
	}
	for _, n := range d.Nodes {
		if n.This {
			return n.MasterAnswers() && !slices.Contains([]string{"waiting", "hangs", "down", "full"}, n.Storage)
		}
	}
	return false
}

// MasterAnswers reports whether the node's own master answers, or the node has no master. If it is
// not known whether the master of another node answers, MasterAnswers returns true.
func (n Node) MasterAnswers() bool {
	return slices.Contains([]string{"ok", "off", "-", "?", ""}, n.Master)
}

// ServedElsewhere returns the health of a node whose minions get answers, if necessary from the
// masters of other nodes. A fatal fault of the node's own master then only degrades the node.
func ServedElsewhere(problems []Problem) Health {
	rest := slices.DeleteFunc(slices.Clone(problems), ofMaster)
	h := Worst(rest)
	if h == Healthy && len(rest) < len(problems) {
		h = Degraded
	}
	return h
}

// Worst returns the health that follows from the shown problems.
func Worst(problems []Problem) Health {
	h := Healthy
	for _, p := range problems {
		switch {
		case p.Code == NotConfigured:
			return Unconfigured
		case p.Severity == Fatal:
			h = NotServing
		case p.Severity == Warning && h == Healthy:
			h = Degraded
		}
	}
	return h
}

func rankOf(s Severity) int { return slices.Index([]Severity{Fatal, Warning, Notice}, s) }

func withSubject(format, subject string) string { return strings.ReplaceAll(format, "%s", subject) }
