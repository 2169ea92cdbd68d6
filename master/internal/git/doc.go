// Package git keeps copies of git repositories for the file server and pillars, and reads their
// content.
//
// The program git fetches, and uses the host's ssh, known_hosts, certificates, proxies and
// authorities. A long-lived `git cat-file --batch` reads objects (docs/decisions/0012-git.md). A
// [Store] has one bare [Repository] for each remote, which all users of an equal remote share. A
// fetch that finds something new makes a [Snapshot], which never changes and replaces the last one in
// one step. After a failed fetch the last snapshot stays in service.
//
// A remote may be hostile. The number of refs, and the sizes of the repository, of trees, paths and
// files are bounded ([Limits]). Names that could lead out of a directory are ignored, links are not
// followed on disk, no hook, filter or submodule is ever run, and git may use only the protocol of
// the remote's URL. Names from minions (environments and files) are only compared with names of refs
// and trees.
//
// Only one process may own the directory of a Store. So there are no locks: remains of a killed fetch
// are removed at the start and before each fetch. All methods may be called concurrently.
package git
