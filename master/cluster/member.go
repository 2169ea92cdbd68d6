package cluster

// IsMember reports whether a master of that name (an address, usually) belongs to
// the cluster now. It does not wait.
func (p *Pool) IsMember(id string) bool {
	_, ok := p.view.Load().rec.Member(id)
	return ok
}
