package jobs

// HandOver passes a job of this master's files on to the other masters. It is for jobs that Salt's
// own salt-run has written there by itself. It does nothing for an unknown job.
func (c *Cluster) HandOver(jid string) {
	if checkJID(jid) != nil {
		return
	}
	c.volume.queueRecords(c.recordsOf(jid)...)
}
