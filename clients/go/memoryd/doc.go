// Package memoryd is a client of memoryd, the daemon that gives AI agents a memory that lasts.
//
//	client, err := memoryd.Connect()
//	if err != nil {
//		return err
//	}
//	defer client.Close()
//	found, err := client.Search(ctx, &memorydv1.MemorySearchRequest{Query: "who owns the cache?"})
//
// [Connect] finds the daemon, its token and its certificates in the places where the daemon's own command looks, unless
// options name others. The methods of [Client] take and return the messages of the contract, which are in the package
// memorydv1. A call that did not end with OK returns an [*Error].
//
// Every call but Sync and Watch has a deadline: that of its context, whether longer or shorter; else the one that
// [WithTimeout] gives; else the one that the service documents. A call that ended UNAVAILABLE is tried again, for
// about a second, within its deadline.
package memoryd
