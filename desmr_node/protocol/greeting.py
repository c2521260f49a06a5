"""Whether two neighbours are set up for the same fit and, if not, what differs, in words for both sides."""

from itertools import zip_longest

from desmr_node.protocol.messages import Hello, Schema

#: More differences than this are counted, not listed.
_LISTED = 3


def differences(own: Hello, theirs: Hello, peer: str) -> list[str]:
    """One sentence for everything that keeps `own` and `theirs` apart; empty if they fit together."""
    if theirs.node != peer:
        return [f"{peer} calls itself {theirs.node!r}: its certificate and its node id must be the same"]
    if own.network != theirs.network:
        return [f"the network is {own.network!r} at {own.node} and {theirs.network!r} at {peer}: correct one"]
    if theirs.version < own.oldest_version or own.version < theirs.oldest_version:
        return [
            f"{own.node} speaks protocol versions {own.oldest_version} to {own.version} and {peer} "
            f"{theirs.oldest_version} to {theirs.version}: upgrade the older"
        ]
    found = _schema(own.schema, theirs.schema, own.node, peer)
    found += _settings(own.settings, theirs.settings, own.node, peer)
    if len(found) > _LISTED:
        found = [*found[:_LISTED], f"and {len(found) - _LISTED} more differences"]
    return found


def _schema(own: Schema, theirs: Schema, here: str, there: str) -> list[str]:
    found = []
    if own.response != theirs.response:
        found.append(f"the response is {own.response!r} at {here} and {theirs.response!r} at {there}")
    if len(own.features) != len(theirs.features):
        extra = sorted(set(own.features) ^ set(theirs.features))
        named = f" ({', '.join(map(repr, extra[:_LISTED]))} at one only)" if extra else ""
        found.append(f"{here} has {len(own.features)} features and {there} {len(theirs.features)}{named}")
    elif own.features != theirs.features and set(own.features) == set(theirs.features):
        at = next(
            i for i, pair in enumerate(zip(own.features, theirs.features, strict=True)) if len(set(pair)) > 1
        )
        found.append(
            f"the features are in another order: feature {at + 1} is {own.features[at]!r} at {here} and "
            f"{theirs.features[at]!r} at {there}; list them in [data] features"
        )
    else:
        found += [
            f"feature {i + 1} is {mine!r} at {here} and {yours!r} at {there}"
            for i, (mine, yours) in enumerate(zip_longest(own.features, theirs.features))
            if mine != yours
        ]
    return found


def _settings(own: dict[str, str], theirs: dict[str, str], here: str, there: str) -> list[str]:
    return [
        f"[fit] {name} is {own.get(name, 'unknown')} at {here} and {theirs.get(name, 'unknown')} at {there}"
        for name in sorted(own.keys() | theirs.keys())
        if own.get(name) != theirs.get(name)
    ]
