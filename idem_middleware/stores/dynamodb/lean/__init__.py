"""DynamoDB without a client: botocore finds out how it is reached, and the rest is a signature and a POST.

Everything that can be got wrong is taken from parts that are well kept: credentials and their renewal, endpoint,
region, timeouts, TLS and proxies from botocore, connections from urllib3 or aiohttp, documents from json (or orjson,
where it is installed). Our own is what those parts spend most of their time on: one signature for one kind of
request, and one kind of answer.
"""
