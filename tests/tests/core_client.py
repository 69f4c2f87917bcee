"""Hands calls on to a CRI socket by gRPC's C core, which writes its headers in another way than Go.

Listens on the first socket, calls on the second by one connection, and prints each call's path before it is made.
"""

import signal
import sys
from concurrent.futures import ThreadPoolExecutor

import grpc

listen, target = sys.argv[1:]
channel = grpc.insecure_channel("unix:" + target, options=[("grpc.max_receive_message_length", 16 << 20)])


class Through(grpc.GenericRpcHandler):
    def service(self, details):
        def call(request, context):
            print(details.method, flush=True)
            try:
                return channel.unary_unary(details.method)(request)
            except grpc.RpcError as error:
                context.abort(error.code(), error.details())

        return grpc.unary_unary_rpc_method_handler(call)


server = grpc.server(ThreadPoolExecutor(1), handlers=(Through(),))
server.add_insecure_port("unix:" + listen)
server.start()
print("ready", flush=True)
signal.sigwait([signal.SIGTERM])
