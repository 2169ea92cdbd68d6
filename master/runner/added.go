package runner

// added describes a function that is not in the table of [New], because the function needs a part
// of a running master.
type added struct {
	params string // the parameters, as in def.params
	// about is a description of the function. It is "" for a function that Salt has.
	about string
}

// addedByMaster are the functions that every Saltern master adds to its table of runners.
var addedByMaster = map[string]added{
	"presence.minions": {"finger=", "Returns all keys, each with what this master knows of its minion."},
	records:            {"since= user= action= last=", "Returns the newest records of the audit on this node."},
	"audit.all":        {"since= user= action= last= acts= refused=", "Returns the newest records of the audit on all nodes."},
	"fleet.summary":    {"since=", "Returns the state of all minions, and counts of the runs since a time."},
	"fleet.trend":      {"", "Returns the state of all minions, their results on each of the last 31 days, and drift."},
	"fleet.last": {"minion= result= state= brief= limit= after=",
		"Returns the last run of states of each minion."},
	"fleet.runs": {"minion= function= user= result= state= jid= since= until= limit= page=",
		"Returns runs of all functions, the latest first."},
	"fleet.jobs": {"jid= minion= function= user= result= since= until= limit= page=",
		"Returns jobs with their outcomes, the latest first."},
	"fleet.drift": {"minion= function= user= state= since= until= limit=",
		"Returns what had been changed on minions by something else than their states."},
	"fleet.explain": {"minion key= user= fun= ask=",
		"Returns what is known of a minion, and why it does not answer."},
	"fleet.search": {"text minion= function= user= result= since= until= limit=",
		"Returns runs with a text in ids, states, comments or changes."},
	"pillar.diff": {"ref= tgt= tgt_type= from= folder= remote= into= env= saltenv= pillarenv= format=",
		"Returns what a branch, tag, commit or folder would change in the pillars of minions."},
	"top.diff": {"ref= tgt= tgt_type= from= folder= remote= into= env= saltenv= pillarenv= format=",
		"Returns what a branch, tag, commit or folder would change in the states that minions get."},
	"pillar.readers": {"key= tgt= tgt_type= file= block= saltenv= pillarenv= format=",
		"Returns which minions get a key of the pillar, a pillar file or a secret of it, and through which files."},
	"schedule.list":        {"count=", "Returns the entries of the master's schedule and their next runs."},
	"saved.targets":        {"", "Returns the saved targets."},
	"saved.jobs":           {"", "Returns the saved jobs, or those that the caller may run."},
	"saved.schedules":      {"", "Returns the saved schedules."},
	"saved.show":           {"kind name", "Returns a saved target, job or schedule."},
	"saved.set_target":     {"name expression type= description= revision=", "Saves a target for all masters."},
	"saved.set_job":        {"name revision= **", "Saves a job for all masters."},
	"saved.set_schedule":   {"name revision= **", "Saves a schedule for all masters."},
	"saved.delete":         {"kind name revision=", "Deletes a saved target, job or schedule."},
	"saved.run":            {"name test= fields= revision= **", "Runs a saved job with values of its fields."},
	"saved.outcome":        {"jid", "Returns a job that the caller has started, with its returns."},
	"saved.next":           {"count=", "Returns the next runs of the saved schedules."},
	"saved.export":         {"", "Returns all saved objects as YAML."},
	"saved.import":         {"text replace= test=", "Saves the objects of an export, all or none."},
	"notify.list":          {"", "Returns the rules for notifications, what became of messages, and the silences."},
	"notify.test":          {"rule", "Sends a test message to each destination of a rule, and returns what became of it."},
	"notify.silence":       {"name minutes= until= rule= minions= kind=", "Keeps messages from being sent for a time."},
	"notify.unsilence":     {"name", "Ends a silence."},
	"git.branches":         {"", "Returns the branches and tags of the git remotes as this master has them."},
	"git.reports":          {"", "Returns which new commits wait to be compared, and the latest results."},
	"git.status":           {"", "Returns which commits of the git remotes each master serves."},
	"git.fetch":            {"", "Fetches all git remotes, on this master and on the others."},
	"git.reload":           {"", "Reads the options of the git remotes again, on all masters."},
	"appliance.status":     {"", "Returns the state of the nodes, their services and problems."},
	"appliance.course":     {"", "Returns the metrics of the nodes of the last day."},
	"auth.mk_token":        {"**", ""},
	"auth.del_token":       {"token", ""},
	"git_pillar.update":    {"branch= repo=", ""},
	"cache.clear_git_lock": {"role remote= **", ""},
}

// addedByCluster are the functions that a master in a cluster adds to its table of runners.
var addedByCluster = map[string]added{
	"cluster.members":       {"", "Returns the masters of this cluster, their state, queues and keys."},
	"cluster.remove":        {"id", "Removes a master for good. Returns the new cluster_secret."},
	"cluster.rotate":        {"", "Replaces the cluster's AES key."},
	"cluster.secret":        {"", "Returns the secret that a joining master must show now."},
	"cluster.secret_next":   {"", "Creates the next secret. From then on the masters accept both."},
	"cluster.secret_commit": {"finger", "Makes the next secret the only one."},
}

// OfMaster reports whether a function needs a running master. Every Saltern master adds such a
// function to its table of runners.
func OfMaster(name string) bool {
	_, ok := addedByMaster[name]
	return ok
}

// OfCluster reports whether a function needs a cluster. A master that belongs to a cluster adds
// such a function to its table of runners.
func OfCluster(name string) bool {
	_, ok := addedByCluster[name]
	return ok
}
